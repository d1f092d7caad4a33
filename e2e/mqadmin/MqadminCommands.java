// SPDX-License-Identifier: Apache-2.0

import java.io.ByteArrayOutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.rocketmq.tools.command.MQAdminStartup;
import org.apache.rocketmq.tools.command.SubCommand;

/**
 * Tries every command of the official mqadmin on a broker, as a table says, and prints a row of Markdown for each. Its
 * exit status tells whether all did what the table says. Arguments: table, name server, broker, folder for files.
 */
public class MqadminCommands {
    static final PrintStream CONSOLE = System.out;
    static final int MOST_SECONDS = 60;
    static final Map<String, String> STATES = Map.of("ok", "works", "none", "works (tried where there is nothing to show)",
        "no", "refused: not supported");

    /** The commands keep clients in their fields and expect to run once a process. */
    static class Fresh extends MQAdminStartup {
        static void run(String[] words) {
            SUB_COMMANDS.clear();
            main0(words, null);
        }

        static Set<String> names() {
            SUB_COMMANDS.clear();
            initCommand();
            Set<String> names = new HashSet<>();
            for (SubCommand c : SUB_COMMANDS) {
                names.add(c.commandName());
            }
            return names;
        }
    }

    public static void main(String[] args) throws Exception {
        Path folder = Path.of(args[3]);
        String stamp = Long.toHexString(System.nanoTime());
        Map<String, String> words = new LinkedHashMap<>();
        words.put("{ns}", args[1]);
        words.put("{nsAddr}", args[1]);
        words.put("{broker}", args[2]);
        words.put("{topic}", "mqadmin-" + stamp);
        words.put("{group}", "mqadmin-group-" + stamp);
        words.put("{secret}", "not-a-secret-" + stamp);
        words.put("{out}", folder.toString());
        words.put("{topics.json}", write(folder, "topics.json", "[{\"topicName\":\"listed-" + stamp
            + "\",\"readQueueNums\":4,\"writeQueueNums\":4,\"perm\":6}]"));
        words.put("{groups.json}", write(folder, "groups.json", "[{\"groupName\":\"listed-" + stamp + "\"}]"));
        Set<String> left = Fresh.names();
        int failed = 0;
        CONSOLE.println("| command | state | note |\n| --- | --- | --- |");
        Set<String> told = new HashSet<>();
        for (String line : Files.readAllLines(Path.of(args[0]))) {
            if (line.isBlank() || line.startsWith("#")) {
                continue;
            }
            String[] sides = line.split(" \\| ", 2);
            String[] want = sides[0].split(" ", 2);
            String[] call = sides[1].split(" ");
            left.remove(call[0]);
            if (want[0].equals("never")) {
                CONSOLE.printf("| %s | not tried | %s |%n", call[0], want[1]);
                continue;
            }
            String output = call(fill(call, words));
            learn(words, output);
            boolean held = output.contains(fill(new String[] {want[1]}, words)[0]);
            boolean clear = !want[0].equals("ok") || !output.contains("Exception");
            if (held && clear && told.add(call[0])) {
                CONSOLE.printf("| %s | %s | |%n", call[0], STATES.get(want[0]));
            } else if (!held || !clear) {
                failed++;
                CONSOLE.printf("| %s | FAILED | wanted %s |%n", call[0], sides[0]);
                System.err.println("$ mqadmin " + String.join(" ", fill(call, words)) + "\n" + output);
            }
        }
        for (String name : left) {
            failed++;
            CONSOLE.printf("| %s | FAILED | not in the table |%n", name);
        }
        System.exit(failed == 0 ? 0 : 1);
    }

    static String write(Path folder, String name, String text) throws Exception {
        return Files.writeString(folder.resolve(name), text).toString();
    }

    static String[] fill(String[] parts, Map<String, String> words) {
        List<String> filled = new ArrayList<>();
        for (String part : parts) {
            for (Map.Entry<String, String> w : words.entrySet()) {
                part = part.replace(w.getKey(), w.getValue());
            }
            filled.add(part);
        }
        return filled.toArray(new String[0]);
    }

    /** Takes what later commands need from the row that sendMessage prints, and the offset id from a query by key. */
    static void learn(Map<String, String> words, String output) {
        Matcher sent = Pattern.compile("(\\S+) +(\\d+) +SEND_OK +(\\w+)").matcher(output);
        if (sent.find() && !words.containsKey("{msgId}")) {
            words.put("{brokerName}", sent.group(1));
            words.put("{queue}", sent.group(2));
            words.put("{msgId}", sent.group(3));
        }
        Matcher stored = Pattern.compile("OffsetID: +(\\w+)").matcher(output);
        if (stored.find() && !words.containsKey("{offsetMsgId}")) {
            words.put("{offsetMsgId}", stored.group(1));
        }
    }

    /** Returns what one command printed, standard error included. */
    static String call(String[] words) throws InterruptedException {
        ByteArrayOutputStream bytes = new ByteArrayOutputStream();
        PrintStream capture = new PrintStream(bytes, true, StandardCharsets.UTF_8);
        PrintStream err = System.err;
        System.setOut(capture);
        System.setErr(capture);
        Thread command = new Thread(() -> Fresh.run(words));
        command.setDaemon(true);
        command.start();
        command.join(MOST_SECONDS * 1000L);
        System.setOut(CONSOLE);
        System.setErr(err);
        return bytes.toString(StandardCharsets.UTF_8) + (command.isAlive() ? "\nException: did not end" : "");
    }
}
