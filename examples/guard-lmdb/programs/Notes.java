import java.io.RandomAccessFile;
import java.nio.MappedByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.SplittableRandom;

/**
 * Another runtime: a program that stores through a MappedByteBuffer and holds what it reads against
 * what it stored. What it leaves follows from its arguments alone.
 */
public final class Notes {
    private static final int NOTE = 256;

    public static void main(String[] words) throws Exception {
        int notes = Integer.parseInt(words[1]);
        int steps = Integer.parseInt(words[2]);
        SplittableRandom random = new SplittableRandom(7);
        byte[] shadow = new byte[notes * NOTE];
        try (RandomAccessFile file = new RandomAccessFile(words[0], "rw");
                FileChannel channel = file.getChannel()) {
            MappedByteBuffer map = channel.map(FileChannel.MapMode.READ_WRITE, 0, shadow.length);
            byte[] note = new byte[NOTE];
            for (int step = 1; step <= steps; step++) {
                for (int store = 0; store < 40; store++) {
                    int at = random.nextInt(notes) * NOTE;
                    random.nextBytes(note);
                    map.put(at, note);
                    System.arraycopy(note, 0, shadow, at, NOTE);
                }
                if (step % 50 == 0) {
                    map.force();
                    look(map, shadow, step);
                }
                if (step == steps / 2) {
                    map.force();
                    rest();
                    look(map, shadow, step);
                }
                Thread.sleep(5);
            }
            map.force();
            look(map, shadow, steps);
        }
    }

    /** If PAUSE names a folder: makes "here" in it and waits for "go". The file stays mapped. */
    private static void rest() throws Exception {
        String folder = System.getenv("PAUSE");
        if (folder == null) {
            return;
        }
        Files.createFile(Path.of(folder, "here"));
        while (!Files.exists(Path.of(folder, "go"))) {
            Thread.sleep(50);
        }
    }

    private static void look(MappedByteBuffer map, byte[] shadow, int step) {
        byte[] seen = new byte[shadow.length];
        map.get(0, seen);
        int differs = java.util.Arrays.mismatch(seen, shadow);
        if (differs >= 0) {
            System.err.println("Notes: byte " + differs + " is not what was stored, step " + step);
            System.exit(1);
        }
    }
}
