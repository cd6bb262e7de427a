import java.io.IOException;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.io.Writer;
import java.util.List;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageRequestMode;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * The unmodified RocketMQ 5 remoting client in POP mode: {@code java Pop COMMAND key=value ...}; namesrv= and broker= always.
 *
 * <pre>
 *   mode  topic= group=                                          : the broker is told that this group pops this topic (request 401)
 *   push  topic= group= out= [n=] [idle=8] [sub=*] [fail=0] : push consumer; ends after n messages or idle seconds without one
 * </pre>
 *
 * <p>One JSON line per delivery goes to {@code out}: seq, attempt, topic, queue_id, unique_key, keys, tags, body. The last line of standard output sums up.
 */
public final class Pop {
    private static final Map<String, String> OPTIONS = new HashMap<>();
    private static final PrintStream OUT = new PrintStream(System.out, true);

    private Pop() {
    }

    private static String text(String key, String otherwise) {
        return OPTIONS.getOrDefault(key, otherwise);
    }

    private static int number(String key, int otherwise) {
        return Integer.parseInt(text(key, Integer.toString(otherwise)));
    }

    public static void main(String[] arguments) {
        for (int i = 1; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            OPTIONS.put(pair[0], pair.length > 1 ? pair[1] : "1");
        }
        int code = 0;
        try {
            if (arguments[0].equals("mode")) {
                mode();
            } else if (arguments[0].equals("push")) {
                push();
            } else {
                throw new IllegalArgumentException("unknown command " + arguments[0]);
            }
        } catch (Throwable error) {
            error.printStackTrace();
            code = 1;
        }
        System.err.flush();
        System.exit(code);   // the client's own threads are not daemons
    }

    private static void mode() throws Exception {
        DefaultMQAdminExt admin = new DefaultMQAdminExt(15_000);
        admin.setNamesrvAddr(text("namesrv", ""));
        admin.setClientIP("127.0.0.1");
        admin.setInstanceName("mode" + System.nanoTime());
        admin.start();
        admin.setMessageRequestMode(text("broker", ""), text("topic", ""), text("group", ""), MessageRequestMode.POP, 0, 10_000);
        admin.shutdown();
        OUT.println("{\"mode\":\"POP\"}");
    }

    private static void push() throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(text("group", ""));
        consumer.setNamesrvAddr(text("namesrv", ""));
        consumer.setClientIP("127.0.0.1");
        consumer.setInstanceName("pop" + System.nanoTime());
        consumer.setVipChannelEnabled(false);
        consumer.setPollNameServerInterval(1_000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setClientRebalance(false);
        consumer.setPopInvisibleTime(number("invisible_ms", 15_000));
        consumer.setPopBatchNums(number("batch", 32));
        consumer.subscribe(text("topic", ""), text("sub", "*"));
        int wanted = number("n", Integer.MAX_VALUE);
        AtomicLong taken = new AtomicLong();
        AtomicLong last = new AtomicLong(System.nanoTime());
        AtomicInteger fail = new AtomicInteger(number("fail", 0));
        Path path = Paths.get(text("out", ""));
        try (Writer out = Files.newBufferedWriter(path, StandardCharsets.UTF_8, StandardOpenOption.CREATE, StandardOpenOption.APPEND)) {
            consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                note(out, messages, taken, last);
                if (messages.get(0).getReconsumeTimes() == 0 && fail.getAndDecrement() > 0) {
                    return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            consumer.start();
            last.set(System.nanoTime());
            while (taken.get() < wanted && System.nanoTime() - last.get() < number("idle", 8) * 1_000_000_000L) {
                Thread.sleep(20);
            }
            consumer.shutdown();
        }
        OUT.println("{\"taken\":" + taken.get() + "}");
    }

    private static void note(Writer out, List<MessageExt> messages, AtomicLong taken, AtomicLong last) {
        StringBuilder lines = new StringBuilder();
        for (MessageExt m : messages) {
            lines.append("{\"seq\":").append(m.getUserProperty("seq")).append(",\"attempt\":").append(m.getReconsumeTimes() + 1)
                .append(",\"topic\":\"").append(m.getTopic()).append("\",\"queue_id\":").append(m.getQueueId())
                .append(",\"unique_key\":\"").append(m.getMsgId()).append("\",\"keys\":\"").append(m.getKeys())
                .append("\",\"tags\":\"").append(m.getTags()).append("\",\"born\":").append(m.getBornTimestamp())
                .append(",\"body\":\"").append(new String(m.getBody(), StandardCharsets.UTF_8)).append("\"}\n");
        }
        synchronized (out) {
            try {
                out.write(lines.toString());
                out.flush();
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }
        taken.addAndGet(messages.size());
        last.set(System.nanoTime());
    }
}
