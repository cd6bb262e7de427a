import java.io.PrintStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;

/**
 * The unmodified Java client under the clock: {@code java Bench COMMAND key=value ...}; the last line of standard output is JSON.
 *
 * <pre>
 *   send  topic= ways=NAMESRV,NAMESRV [pids=] [threads=4] [slices=6] [slice_ms=1000] [warm_ms=2000] [bytes=1024] [rate=0]
 *   pull  topic= ways=... [pids=] [slices=] [slice_ms=] [warm_ms=] [batch=32] [queues=]
 *         a thread a queue, at most so many, from the first message, over again at the end
 *   push  topic= namesrv= group= n= [idle=20] [batch=32] [threads=4]
 *         a push consumer of a new group from the first message, until it has had n
 * </pre>
 *
 * <p>{@code send} and {@code pull} go by each way in turn, a slice at a time, with a client of its own for each that is kept
 * all the while, and time every call. {@code rate=}: calls a second, all threads together; 0: each as soon as its last is done.
 * {@code pids=}: for each way the process in the middle (0: none), whose CPU is counted in the slices of its way alone.
 */
public final class Bench {
    private static final PrintStream OUT = new PrintStream(System.out, true);
    private static final Map<String, String> OPTIONS = new HashMap<>();

    private Bench() {
    }

    /** One call of one worker; how many messages it moved. */
    private interface Call {
        int go() throws Exception;
    }

    public static void main(String[] arguments) {
        for (int i = 1; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            OPTIONS.put(pair[0], pair[1]);
        }
        int code = 0;
        try {
            if (arguments[0].equals("push")) {
                push();
            } else {
                inTurn(arguments[0]);
            }
        } catch (Throwable error) {
            error.printStackTrace();
            code = 1;
        }
        System.err.flush();
        System.exit(code);   // the client's own threads are not daemons
    }

    private static String text(String key) {
        String value = OPTIONS.get(key);
        if (value == null) {
            throw new IllegalArgumentException("option " + key + "= is missing");
        }
        return value;
    }

    private static int number(String key, int otherwise) {
        return Integer.parseInt(OPTIONS.getOrDefault(key, Integer.toString(otherwise)));
    }

    private static <T extends ClientConfig> T configured(T client, String nameServer) {
        client.setNamesrvAddr(nameServer);
        client.setClientIP("127.0.0.1");
        client.setInstanceName("bench" + ProcessHandle.current().pid() + "-" + System.nanoTime());
        client.setVipChannelEnabled(false);
        return client;
    }

    // ---- by each way in turn

    private static void inTurn(String command) throws Exception {
        String[] ways = text("ways").split(",");
        String[] pids = OPTIONS.containsKey("pids") ? text("pids").split(",") : new String[0];
        List<List<Call>> workers = new ArrayList<>();
        List<Tally> tallies = new ArrayList<>();
        for (String way : ways) {
            workers.add(command.equals("send") ? senders(way) : pullers(way));
            tallies.add(new Tally());
        }
        ExecutorService pool = Executors.newCachedThreadPool();
        for (List<Call> calls : workers) {
            slice(pool, calls, number("warm_ms", 2000), new Tally());
        }
        int slices = number("slices", 6);
        for (int round = 0; round < slices; round++) {
            for (int k = 0; k < ways.length; k++) {
                int way = round % 2 == 0 ? k : ways.length - 1 - k;   // neither is always the first
                long before = ticks(pids, way);
                slice(pool, workers.get(way), number("slice_ms", 1000), tallies.get(way));
                tallies.get(way).cpuTicks += ticks(pids, way) - before;
            }
        }
        StringBuilder line = new StringBuilder("{\"ways\":[");
        for (int k = 0; k < ways.length; k++) {
            line.append(k > 0 ? "," : "").append(tallies.get(k));
        }
        OUT.println(line.append("]}"));
    }

    /** CPU that the process of a way has used, user and kernel, in the kernel's ticks. */
    private static long ticks(String[] pids, int way) throws Exception {
        if (way >= pids.length || pids[way].equals("0")) {
            return 0;
        }
        String stat = Files.readString(Path.of("/proc", pids[way], "stat"));
        String[] fields = stat.substring(stat.lastIndexOf(')') + 2).split(" ");
        return Long.parseLong(fields[11]) + Long.parseLong(fields[12]);
    }

    private static List<Call> senders(String nameServer) throws Exception {
        DefaultMQProducer producer = configured(new DefaultMQProducer("bench_producer"), nameServer);
        producer.setSendMsgTimeout(10_000);
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        byte[] body = new byte[number("bytes", 1024)];
        Arrays.fill(body, (byte) 'x');
        String topic = text("topic");
        List<Call> calls = new ArrayList<>();
        for (int t = 0; t < number("threads", 4); t++) {
            calls.add(() -> {
                SendResult result = producer.send(new Message(topic, "tag", body));
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    throw new IllegalStateException("broker answered " + result.getSendStatus());
                }
                return 1;
            });
        }
        return calls;
    }

    @SuppressWarnings("deprecation")
    private static List<Call> pullers(String nameServer) throws Exception {
        DefaultMQPullConsumer consumer = configured(new DefaultMQPullConsumer("bench_puller"), nameServer);
        consumer.start();
        Collection<MessageQueue> queues = consumer.fetchSubscribeMessageQueues(text("topic"));
        int batch = number("batch", 32);
        List<Call> calls = new ArrayList<>();
        for (MessageQueue queue : queues) {
            if (calls.size() == number("queues", Integer.MAX_VALUE)) {
                break;
            }
            long[] next = {0};
            calls.add(() -> {
                PullResult result = consumer.pull(queue, "*", next[0], batch);
                if (result.getPullStatus() != PullStatus.FOUND) {
                    throw new IllegalStateException("pulling " + queue + " at " + next[0] + " gave " + result.getPullStatus());
                }
                next[0] = result.getNextBeginOffset() + batch > result.getMaxOffset() ? 0 : result.getNextBeginOffset();
                return result.getMsgFoundList().size();
            });
        }
        return calls;
    }

    private static void slice(ExecutorService pool, List<Call> calls, int millis, Tally tally) throws Exception {
        int rate = number("rate", 0);
        long every = rate == 0 ? 0 : 1_000_000_000L * calls.size() / rate;
        long start = System.nanoTime();
        long end = start + millis * 1_000_000L;
        List<Future<Tally>> running = new ArrayList<>();
        for (int t = 0; t < calls.size(); t++) {
            Call call = calls.get(t);
            long first = start + every * t / calls.size();
            Callable<Tally> worker = () -> {
                Tally own = new Tally();
                for (long due = first; System.nanoTime() < end; due += every) {
                    for (long wait = due - System.nanoTime(); every > 0 && wait > 0; wait = due - System.nanoTime()) {
                        TimeUnit.NANOSECONDS.sleep(wait);
                    }
                    long began = System.nanoTime();
                    int moved = call.go();
                    own.add(System.nanoTime() - began, moved);
                }
                return own;
            };
            running.add(pool.submit(worker));
        }
        Tally whole = new Tally();
        for (Future<Tally> one : running) {
            whole.merge(one.get());
        }
        whole.seconds = (System.nanoTime() - start) / 1e9;
        tally.slice(whole);
    }

    /** Durations of calls, in nanoseconds. Of several slices: the sums, and the medians of their percentiles, for other work comes and goes. */
    private static final class Tally {
        private final List<double[]> slices = new ArrayList<>();
        private long[] nanos = new long[1 << 8];
        private int calls;
        private long messages;
        private double seconds;
        private long cpuTicks;
        private final List<Double> rates = new ArrayList<>();

        void add(long duration, int moved) {
            if (calls == nanos.length) {
                nanos = Arrays.copyOf(nanos, calls * 2);
            }
            nanos[calls++] = duration;
            messages += moved;
        }

        void merge(Tally other) {
            nanos = Arrays.copyOf(nanos, calls + other.calls + 1);
            System.arraycopy(other.nanos, 0, nanos, calls, other.calls);
            calls += other.calls;
            messages += other.messages;
        }

        void slice(Tally whole) {
            long[] sorted = Arrays.copyOf(whole.nanos, whole.calls);
            Arrays.sort(sorted);
            slices.add(new double[] {at(sorted, 0.5), at(sorted, 0.99)});
            rates.add(whole.messages / whole.seconds);
            calls += whole.calls;
            messages += whole.messages;
            seconds += whole.seconds;
        }

        private double median(int which) {
            double[] sorted = slices.stream().mapToDouble(slice -> slice[which]).sorted().toArray();
            return (sorted[(sorted.length - 1) / 2] + sorted[sorted.length / 2]) / 2;
        }

        @Override
        public String toString() {
            return "{\"calls\":" + calls + ",\"messages\":" + messages + ",\"seconds\":" + seconds + ",\"p50_ms\":" + median(0)
                + ",\"p99_ms\":" + median(1) + ",\"cpu_ticks\":" + cpuTicks + ",\"rates\":" + rates + "}";
        }

        private static double at(long[] sorted, double part) {
            return sorted.length == 0 ? 0 : sorted[(int) Math.min(sorted.length - 1, sorted.length * part)] / 1e6;
        }
    }

    // ---- push

    private static void push() throws Exception {
        Seen seen = new Seen(Long.parseLong(text("n")));
        DefaultMQPushConsumer consumer = configured(new DefaultMQPushConsumer(text("group")), text("namesrv"));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeThreadMin(number("threads", 4));
        consumer.setConsumeThreadMax(number("threads", 4));
        consumer.setConsumeMessageBatchMaxSize(number("batch", 32));
        consumer.setPullBatchSize(number("batch", 32));
        consumer.subscribe(text("topic"), "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
            seen.take(messages);
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        long idle = number("idle", 20) * 1_000_000_000L;
        while (!seen.enough.await(100, TimeUnit.MILLISECONDS) && System.nanoTime() - seen.last < idle) {
            Thread.yield();
        }
        OUT.println(seen);
        consumer.shutdown();
    }

    /** What came: the messages in all, and of each queue the highest offset and how many. */
    private static final class Seen {
        private final CountDownLatch enough = new CountDownLatch(1);
        private final Map<Integer, long[]> queues = new TreeMap<>();
        private final long wanted;
        private long count;
        private long first;
        private volatile long last = System.nanoTime();

        Seen(long wanted) {
            this.wanted = wanted;
        }

        synchronized void take(List<MessageExt> messages) {
            long now = System.nanoTime();
            if (count == 0) {
                first = now;
            }
            for (MessageExt message : messages) {
                long offset = message.getQueueOffset();
                long[] queue = queues.computeIfAbsent(message.getQueueId(), key -> new long[] {offset, 0});
                queue[0] = Math.max(queue[0], offset);
                queue[1]++;
            }
            count += messages.size();
            last = now;
            if (count >= wanted) {
                enough.countDown();
            }
        }

        @Override
        public synchronized String toString() {
            long skipped = 0;
            for (long[] queue : queues.values()) {
                skipped += queue[0] + 1 - queue[1];
            }
            return "{\"consumed\":" + count + ",\"skipped\":" + skipped + ",\"seconds\":" + (last - first) / 1e9 + "}";
        }
    }
}
