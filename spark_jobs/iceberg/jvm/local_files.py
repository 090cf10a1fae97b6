"""Make the driver's JVM write faster to a local disk.

1. Hadoop would write a second file with checksums for each file. Only Hadoop reads those, so no driver writes them.
2. Without its native library, which PySpark lacks, Hadoop starts a process `chmod` for every file. Java can set
   permissions by itself, so Spark's own compiler compiles a file system that does. Compiling takes longer than it saves
   for one topic, so only a pack of many topics does it.

An existing jar for this (com.globalmentor:hadoop-bare-naked-local-fs) lists a linked folder inside itself without
end.
"""

from __future__ import annotations

import logging
from typing import Any

from py4j.protocol import Py4JError
from pyspark.sql import SparkSession

logger = logging.getLogger("cleantail.session")

SETTING, NAME = "fs.file.impl", "cleantail.LocalFiles"
COMPILER = "org.codehaus.janino.SimpleCompiler"
SOURCE = """
package cleantail;

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
            if (file.isDirectory() || permission.getStickyBit()) {  // it may have bits that Java does not know
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
"""Hadoop's local file system, except that Java sets the permissions of a file."""


def write_no_checksums(session: SparkSession) -> None:
    """Configure the driver's JVM to write no checksum files on a local disk."""
    jvm: Any = session._jvm
    jvm.org.apache.hadoop.fs.FileSystem.getLocal(session._jsc.hadoopConfiguration()).setWriteChecksum(False)


def set_permissions_without_processes(session: SparkSession) -> None:
    """Make the driver's JVM set permissions of files without a process.

    Does nothing if the user has configured another file system for the local disk. Executors on other hosts are not
    affected.
    """
    jvm: Any = session._jvm
    conf, files = session._jsc.hadoopConfiguration(), jvm.org.apache.hadoop.fs.FileSystem
    if conf.get(SETTING) is not None or files.getLocal(conf).getClass().getName() == NAME:
        return
    try:
        _make(jvm, conf, files)
    except (Py4JError, TypeError) as e:  # a Spark without this compiler (a TypeError): everything works, only slower
        logger.info("Hadoop starts a process for each file that it writes: %s", type(e).__name__)
    write_no_checksums(session)


def _make(jvm: Any, conf: Any, files: Any) -> None:
    """Create the file system, and put it into Hadoop's cache, in which all users of its scheme find it."""
    compiler = getattr(jvm, COMPILER)()
    compiler.cook(SOURCE)
    loader = conf.getClassLoader()
    files.getLocal(conf).close()  # removes it from the cache: the next call creates another one
    conf.setClassLoader(compiler.getClassLoader())
    conf.set(SETTING, NAME)
    try:
        files.getLocal(conf)
    finally:
        conf.unset(SETTING)
        conf.setClassLoader(loader)
