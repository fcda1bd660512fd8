package headgate.engine;

import java.io.IOException;
import java.io.InterruptedIOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.s3a.RemoteFileChangedException;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/**
 * Files of a checkpoint on S3. A file that may be there only once is written with If-None-Match, so that the store itself
 * decides between two writers; Spark's own ways look whether the file is there and then write it, and the later of two
 * writers wins without anyone noticing. A file appears whole when it is closed, or never.
 */
public final class ConditionalCheckpointFiles extends FileSystemBasedCheckpointFileManager {
  private static final String ONLY_IF_ABSENT = "fs.option.create.conditional.overwrite";

  public ConditionalCheckpointFiles(Path path, Configuration configuration) {
    super(path, configuration);
  }

  @Override
  public CheckpointFileManager.CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
    try {
      return new Upload(overwriteIfPossible ? fs().create(path, true) : createOnce(path), path);
    } catch (IOException error) {
      throw sneaky(error);
    }
  }

  private FSDataOutputStream createOnce(Path path) throws IOException {
    return (FSDataOutputStream) fs().createFile(path).recursive().must(ONLY_IF_ABSENT, true).build();
  }

  /** Scala declares no checked exceptions, and its callers catch them by their types. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> RuntimeException sneaky(Throwable error) throws E {
    throw (E) error;
  }

  private static final class Upload extends CheckpointFileManager.CancellableFSDataOutputStream {
    private final FSDataOutputStream stream;
    private final Path path;
    private boolean over;

    Upload(FSDataOutputStream stream, Path path) {
      super(stream);
      this.stream = stream;
      this.path = path;
    }

    @Override
    public synchronized void close() throws IOException {
      if (over) {
        return;
      }
      // A task that is being ended must not leave a file that looks whole.
      if (Thread.currentThread().isInterrupted()) {
        cancel();
        throw new InterruptedIOException(path + " is not written: its writer is being stopped");
      }
      over = true;
      try {
        stream.close();
      } catch (RemoteFileChangedException error) {
        FileAlreadyExistsException taken = new FileAlreadyExistsException(path + " was written by another run");
        taken.initCause(error);
        throw taken;
      }
    }

    @Override
    public synchronized void cancel() {
      if (over) {
        return;
      }
      over = true;
      stream.abort();
    }
  }
}
