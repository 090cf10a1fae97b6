"""The local disk as the driver's JVM writes to it.

1. Hadoop would write a second file, of checksums, beside each, which nothing but Hadoop reads: no driver has that.
2. Without its native library, which PySpark does not have, Hadoop starts a process, `chmod`, for every file. Java sets
   permissions by itself, so Spark's own compiler makes a file system that has it do so. To make it takes longer than
   it saves for one topic, so a pack of many has it.

A jar that does the same (com.globalmentor:hadoop-bare-naked-local-fs) lists a linked folder as if it were in itself,
without an end.
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
"""Hadoop's local file system, but for who sets the permissions of a file."""


def write_no_checksums(session: SparkSession) -> None:
    """Has the JVM of the driver write a file on a local disk without one of checksums."""
    jvm: Any = session._jvm
    jvm.org.apache.hadoop.fs.FileSystem.getLocal(session._jsc.hadoopConfiguration()).setWriteChecksum(False)


def set_permissions_without_processes(session: SparkSession) -> None:
    """Has the JVM of the driver set permissions of files by itself, unless somebody has set another file system for the
    local disk. Executors elsewhere go on as Hadoop does."""
    jvm: Any = session._jvm
    conf, files = session._jsc.hadoopConfiguration(), jvm.org.apache.hadoop.fs.FileSystem
    if conf.get(SETTING) is not None or files.getLocal(conf).getClass().getName() == NAME:
        return
    try:
        _make(jvm, conf, files)
    except (Py4JError, TypeError) as e:  # a Spark without this compiler (a TypeError): all works as well, only slower
        logger.info("Hadoop starts a process for each file that it writes: %s", type(e).__name__)
    write_no_checksums(session)


def _make(jvm: Any, conf: Any, files: Any) -> None:
    """Make the file system, and put it into Hadoop's cache, where everybody finds it by its scheme."""
    compiler = getattr(jvm, COMPILER)()
    compiler.cook(SOURCE)
    loader = conf.getClassLoader()
    files.getLocal(conf).close()  # which takes it out of the cache: the next one to ask gets another
    conf.setClassLoader(compiler.getClassLoader())
    conf.set(SETTING, NAME)
    try:
        files.getLocal(conf)
    finally:
        conf.unset(SETTING)
        conf.setClassLoader(loader)
