"""The local disk of the tests' JVM: as Hadoop has it, but permissions are set without a process for each file."""

from __future__ import annotations

from pyspark.sql import SparkSession

LOCAL_FILES = """
package tests;

import java.io.File;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.attribute.PosixFilePermissions;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

public class LocalFiles extends LocalFileSystem {
    public static class Raw extends RawLocalFileSystem {
        public void setPermission(Path path, FsPermission permission) throws IOException {
            File file = pathToFile(path);
            if (permission.getStickyBit()) {  // Java does not know this bit
                super.setPermission(path, permission);
            } else {
                Files.setPosixFilePermissions(file.toPath(), PosixFilePermissions.fromString(permission.toString()));
            }
        }
    }

    public LocalFiles() {
        super(new Raw());
    }
}
"""


def set_permissions_without_processes(session: SparkSession) -> None:
    """Without its native library, which PySpark lacks, Hadoop starts a process `chmod` for each file and folder of
    Iceberg. Spark's own compiler makes a file system that sets the same permissions in Java."""
    jvm, conf = session._jvm, session._jsc.hadoopConfiguration()
    compiler, files = jvm.org.codehaus.janino.SimpleCompiler(), jvm.org.apache.hadoop.fs.FileSystem
    compiler.cook(LOCAL_FILES)
    loader = conf.getClassLoader()
    files.getLocal(conf).close()  # removes it from Hadoop's cache: the next call creates another one
    conf.setClassLoader(compiler.getClassLoader())
    conf.set("fs.file.impl", "tests.LocalFiles")
    files.getLocal(conf).setWriteChecksum(False)  # as start_session does it
    conf.unset("fs.file.impl")
    conf.setClassLoader(loader)
    assert files.getLocal(conf).getClass().getName() == "tests.LocalFiles"
