"""The local disk as Spark's JVM writes to it in these tests: as always, but without a process for each file."""

from __future__ import annotations

from pyspark.sql import SparkSession

LOCAL_FILES = """
package tests;

import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends LocalFileSystem {
    public static class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) throws java.io.IOException {
            Files.setPosixFilePermissions(
                pathToFile(path).toPath(), PosixFilePermissions.fromString(permission.toString()));
        }
    }

    public LocalFiles() {
        super(new Raw());
    }
}
"""


def permissions_without_processes(session: SparkSession) -> None:
    """Without its native library Hadoop starts a process, `chmod`, for every file that Iceberg writes to a local disk:
    a tenth of what the tests would cost. Spark's own compiler makes a file system that does the same by itself."""
    jvm, conf = session._jvm, session._jsc.hadoopConfiguration()
    compiler, files = jvm.org.codehaus.janino.SimpleCompiler(), jvm.org.apache.hadoop.fs.FileSystem
    compiler.cook(LOCAL_FILES)
    loader = conf.getClassLoader()
    files.getLocal(conf).close()  # which takes it out of Hadoop's cache: the next one to ask gets another
    conf.setClassLoader(compiler.getClassLoader())
    conf.set("fs.file.impl", "tests.LocalFiles")
    files.getLocal(conf).setWriteChecksum(False)  # as start_session does it
    conf.unset("fs.file.impl")
    conf.setClassLoader(loader)
    assert files.getLocal(conf).getClass().getName() == "tests.LocalFiles"
