import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.Paths;
import java.text.SimpleDateFormat;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.Comparator;
import java.util.Date;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.Callable;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultLitePullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPullConsumer;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.MessageSelector;
import org.apache.rocketmq.client.consumer.PullResult;
import org.apache.rocketmq.client.consumer.PullStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.ConsumeOrderlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.consumer.listener.MessageListenerOrderly;
import org.apache.rocketmq.client.consumer.rebalance.AllocateMessageQueueAveragely;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.remoting.protocol.RemotingCommand;

/**
 * The unmodified client's consumers, of every kind, for {@link Client}: it lists the commands and their options.
 *
 * <p>Each writes what it was handed, in the order in which it was handed it, to {@code out=} and has it on disk before the
 * client hears that it was consumed: so a process killed at any moment leaves a file that says all that it took.
 */
final class Consumers {
    private Consumers() {
    }

    // ---- push

    static void push() throws Exception {
        DefaultMQPushConsumer consumer = named(
            new DefaultMQPushConsumer(Client.need("group"), signing(), new AllocateMessageQueueAveragely()));
        consumer.setConsumeFromWhere(ConsumeFromWhere.valueOf("CONSUME_FROM_" + whence()));
        if (whence().equals("TIMESTAMP")) {
            long millis = Long.parseLong(Client.need("timestamp"));   // the client knows seconds only, in local time
            consumer.setConsumeTimestamp(new SimpleDateFormat("yyyyMMddHHmmss").format(new Date(millis)));
        }
        setModel(consumer, Client.text("model", "CLUSTERING"));
        consumer.setConsumeThreadMin(Client.number("threads", 1));
        consumer.setConsumeThreadMax(Client.number("threads", 1));
        consumer.setConsumeMessageBatchMaxSize(Client.number("batch", 32));
        consumer.setPullBatchSize(Client.number("pull", 32));
        consumer.setPullThresholdForQueue(Client.number("cached", 1000));
        if (Client.text("sql", "").isEmpty()) {
            consumer.subscribe(Client.need("topic"), Client.text("sub", "*"));
        } else {
            consumer.subscribe(Client.need("topic"), MessageSelector.bySql(Client.need("sql")));
        }
        try (Taken taken = new Taken()) {
            if (Client.text("mode", "concurrent").equals("orderly")) {
                consumer.registerMessageListener((MessageListenerOrderly) (messages, context) -> {
                    taken.take(messages);
                    return ConsumeOrderlyStatus.SUCCESS;
                });
            } else {
                consumer.registerMessageListener((MessageListenerConcurrently) (messages, context) -> {
                    taken.take(messages);
                    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
                });
            }
            consumer.start();
            boolean paused = false;
            while (!taken.over()) {
                if (taken.paused() != paused) {
                    paused = !paused;
                    if (paused) {
                        consumer.suspend();
                    } else {
                        consumer.resume();
                    }
                }
                Thread.sleep(20);
            }
            consumer.shutdown();   // commits what was consumed
            Client.OUT.println(taken.summary());
        }
    }

    private static String whence() {
        String from = Client.text("from", "first").toUpperCase();
        return from.equals("TIMESTAMP") ? from : from + "_OFFSET";
    }

    /** The enum moved between 4.9 and 5.x. */
    private static void setModel(DefaultMQPushConsumer consumer, String name) throws Exception {
        Method setter = Arrays.stream(DefaultMQPushConsumer.class.getMethods())
            .filter(method -> method.getName().equals("setMessageModel")).findFirst().orElseThrow();
        Class<?> type = setter.getParameterTypes()[0];
        setter.invoke(consumer, type.getMethod("valueOf", String.class).invoke(null, name.toUpperCase()));
    }

    // ---- lite pull

    static void lite() throws Exception {
        String start = Client.text("start", "begin");
        HeldPulls held = new HeldPulls(signing());
        DefaultLitePullConsumer consumer = named(
            new DefaultLitePullConsumer(Client.need("group"), start.equals("committed") ? signing() : held));
        consumer.setAutoCommit(false);
        consumer.setPullBatchSize(Client.number("pull", 32));
        boolean commit = Client.number("commit", 0) == 1;
        try (Taken taken = new Taken()) {
            consumer.start();
            Collection<MessageQueue> queues = chosen(patiently(() -> consumer.fetchMessageQueues(Client.need("topic"))));
            consumer.assign(queues);
            if (!start.equals("committed")) {
                held.await(queues.size());
            }
            for (MessageQueue queue : queues) {
                if (start.equals("begin")) {
                    patiently(() -> consumer.seekToBegin(queue));
                } else if (start.equals("timestamp")) {
                    long moment = Long.parseLong(Client.need("timestamp"));
                    long offset = patiently(() -> consumer.offsetForTimestamp(queue, moment));
                    patiently(() -> consumer.seek(queue, offset));
                } else if (!start.equals("committed")) {
                    long offset = offsetOf(start, queue);
                    patiently(() -> consumer.seek(queue, offset));
                }
            }
            held.letGo();
            boolean paused = false;
            while (!taken.over()) {
                if (taken.paused() != paused) {
                    paused = !paused;
                    if (paused) {
                        consumer.pause(queues);
                    } else {
                        consumer.resume(queues);
                    }
                }
                List<MessageExt> messages = consumer.poll(100);
                if (!messages.isEmpty()) {
                    taken.take(messages);
                    if (commit) {
                        consumer.commitSync();
                    }
                }
            }
            consumer.shutdown();
            Client.OUT.println(taken.summary());
        }
    }

    /**
     * Holds the pulls of a client back until its queues have been sought.
     *
     * <p>A lite pull consumer pulls from the moment on at which queues are assigned to it, from where its group stands. A seek
     * that meets such a pull in the middle may be lost, or hand out what that pull brought (seen with brokers alone: after
     * a seek to 0 the first message was 64). What is to be tested is what comes after a seek.
     */
    private static final class HeldPulls implements RPCHook {
        private static final Collection<Integer> PULLS = Arrays.asList(11, 361);
        private final RPCHook signing;
        private final Semaphore arrived = new Semaphore(0);
        private final CountDownLatch sought = new CountDownLatch(1);

        HeldPulls(RPCHook signing) {
            this.signing = signing;
        }

        /** Wait until as many pulls are held: the first one of every queue. */
        void await(int pulls) throws InterruptedException {
            if (!arrived.tryAcquire(pulls, 120, TimeUnit.SECONDS)) {
                throw new IllegalStateException("after 120 s only " + arrived.availablePermits() + " of " + pulls + " queues are pulled");
            }
        }

        void letGo() {
            sought.countDown();
        }

        @Override
        public void doBeforeRequest(String address, RemotingCommand request) {
            if (sought.getCount() > 0 && PULLS.contains(request.getCode())) {
                arrived.release();
                try {
                    sought.await();
                } catch (InterruptedException error) {
                    throw new IllegalStateException("the queue was sought before this pull was sent", error);
                }
            }
            if (signing != null) {
                signing.doBeforeRequest(address, request);
            }
        }

        @Override
        public void doAfterResponse(String address, RemotingCommand request, RemotingCommand response) {
            if (signing != null) {
                signing.doAfterResponse(address, request, response);
            }
        }
    }

    // ---- classic pull

    @SuppressWarnings("deprecation")
    static void pull() throws Exception {
        DefaultMQPullConsumer consumer = named(new DefaultMQPullConsumer(Client.need("group"), signing()));
        String start = Client.text("start", "begin");
        Map<MessageQueue, Long> next = new HashMap<>();
        Map<String, Long> statuses = new TreeMap<>();
        long failures = Long.parseLong(Client.text("failures", Long.toString(Long.MAX_VALUE)));
        String why = "";
        try (Taken taken = new Taken()) {
            consumer.start();
            Collection<MessageQueue> queues = chosen(patiently(() -> consumer.fetchSubscribeMessageQueues(Client.need("topic"))));
            if (!Client.text("lite_queue", "").isEmpty()) {   // no route names it; the client must have heard of the broker by then
                MessageQueue heard = queues.iterator().next();
                patiently(() -> consumer.minOffset(heard));
                queues = Arrays.asList(new MessageQueue(Client.need("lite_queue"), heard.getBrokerName(), 0));
            }
            for (MessageQueue queue : queues) {
                if (start.equals("begin")) {
                    next.put(queue, patiently(() -> consumer.minOffset(queue)));
                } else if (start.equals("timestamp")) {
                    long moment = Long.parseLong(Client.need("timestamp"));
                    next.put(queue, patiently(() -> consumer.searchOffset(queue, moment)));
                } else {
                    next.put(queue, offsetOf(start, queue));
                }
            }
            while (!taken.over()) {
                boolean got = false;
                for (MessageQueue queue : queues) {
                    if (taken.paused() || taken.over()) {
                        break;
                    }
                    PullResult result;
                    try {
                        result = consumer.pull(queue, Client.text("sub", "*"), next.get(queue), Client.number("pull", 32));
                    } catch (Exception error) {   // told to try again, refused, or nobody there
                        statuses.merge("FAILED", 1L, Long::sum);
                        why = error.toString();
                        continue;
                    }
                    statuses.merge(result.getPullStatus().name(), 1L, Long::sum);
                    next.put(queue, result.getNextBeginOffset());
                    if (result.getPullStatus() == PullStatus.FOUND) {
                        taken.take(result.getMsgFoundList());
                        got = true;
                    }
                }
                if (statuses.getOrDefault("FAILED", 0L) >= failures) {
                    break;
                }
                if (!got) {
                    Thread.sleep(50);
                }
            }
            consumer.shutdown();
            Client.OUT.println(taken.summary().put("statuses", statuses).put("why", why));
        }
    }

    // ---- what they share

    /** Signs every request with {@code access_key=} and {@code secret_key=}; none without them. */
    private static RPCHook signing() {
        String key = Client.text("access_key", "");
        return key.isEmpty() ? null : new AclClientRPCHook(new SessionCredentials(key, Client.need("secret_key")));
    }

    private static <T extends ClientConfig> T named(T client) {
        Client.configured(client);
        if (!Client.text("instance", "").isEmpty()) {
            client.setInstanceName(Client.need("instance"));
        }
        client.setPersistConsumerOffsetInterval(Client.number("persist_ms", 5000));
        return client;
    }

    private interface Step {
        void take() throws Exception;
    }

    /** Ask again when the first answer fails: a client that has just started may lose a request to its own reconnecting. */
    private static void patiently(Step step) throws Exception {
        patiently(() -> {
            step.take();
            return null;
        });
    }

    private static <T> T patiently(Callable<T> question) throws Exception {
        for (int tries = 1; ; tries++) {
            try {
                return question.call();
            } catch (Exception error) {
                if (tries == 6) {
                    throw error;
                }
                System.err.println("asking again: " + error);
                Thread.sleep(500);
            }
        }
    }

    /** The queues that {@code queue_ids=0,2} names, all of them without; in the order of their numbers. */
    private static Collection<MessageQueue> chosen(Collection<MessageQueue> queues) {
        List<MessageQueue> chosen = new ArrayList<>(queues);
        String named = Client.text("queue_ids", "");
        List<String> wanted = Arrays.asList(named.split(","));
        chosen.removeIf(queue -> !named.isEmpty() && !wanted.contains(Integer.toString(queue.getQueueId())));
        chosen.sort(Comparator.comparingInt(MessageQueue::getQueueId));
        return chosen;
    }

    /** {@code 17} for every queue, or {@code 0:17,1:20}. */
    private static long offsetOf(String start, MessageQueue queue) {
        for (String part : start.split(",")) {
            String[] pair = part.split(":");
            if (pair.length == 1 || pair[0].equals(Integer.toString(queue.getQueueId()))) {
                return Long.parseLong(pair[pair.length - 1]);
            }
        }
        throw new IllegalArgumentException("start= names no offset for queue " + queue.getQueueId());
    }

    /** What a consumer has taken so far, and whether that is enough. */
    private static final class Taken implements AutoCloseable {
        private final Client.Lines lines = new Client.Lines(false);
        private final Path control = Client.text("control", "").isEmpty() ? null : Paths.get(Client.need("control"));
        private final Map<String, long[]> queues = new TreeMap<>();
        private final long start = System.nanoTime();
        private final long want = Long.parseLong(Client.text("n", Long.toString(Long.MAX_VALUE)));
        private final long crashAfter = Long.parseLong(Client.text("crash_after", Long.toString(Long.MAX_VALUE)));
        private final long rate = Client.number("rate", 0);
        private long count;
        private long bytes;
        private long first;
        private long last = start;

        Taken() throws IOException {
        }

        /** Write the messages down; with {@code crash_after=} the process ends here as if it was killed. */
        void take(List<MessageExt> messages) {
            List<Client.Json> described = new ArrayList<>();
            for (MessageExt message : messages) {
                described.add(Client.received(message));
            }
            synchronized (this) {
                first = first == 0 ? System.nanoTime() : first;
                for (int i = 0; i < described.size(); i++) {
                    MessageExt message = messages.get(i);
                    lines.write(described.get(i).put("arrived_ms", System.currentTimeMillis()));
                    long offset = message.getQueueOffset();
                    long[] seen = queues.computeIfAbsent(message.getTopic() + "/" + message.getQueueId(), key -> new long[] {offset, offset, 0});
                    seen[0] = Math.min(seen[0], offset);
                    seen[1] = Math.max(seen[1], offset);
                    seen[2]++;
                    bytes += message.getBody().length;
                    if (++count >= crashAfter) {
                        lines.flush();
                        Runtime.getRuntime().halt(137);
                    }
                }
                lines.flush();
                last = System.nanoTime();
            }
            if (rate > 0) {
                try {
                    Thread.sleep(messages.size() * 1000L / rate);
                } catch (InterruptedException error) {
                    Thread.currentThread().interrupt();
                }
            }
        }

        /**
         * Enough messages and no more for {@code linger=} seconds, none for {@code idle=} seconds, or told to stop. Time does not
         * count while paused.
         */
        synchronized boolean over() {
            if (word().equals("stop")) {
                return true;
            }
            if (paused()) {
                last = System.nanoTime();
                return false;
            }
            int patience = Math.max(Client.number("idle", 5), count > 0 ? 0 : Client.number("first_seconds", 60));
            patience = count >= want ? Client.number("linger", 0) : patience;
            return System.nanoTime() - last > patience * 1_000_000_000L;
        }

        boolean paused() {
            return word().equals("pause");
        }

        private String word() {
            try {
                return control != null && Files.exists(control) ? new String(Files.readAllBytes(control), StandardCharsets.UTF_8).trim() : "";
            } catch (IOException error) {
                return "";   // it is being written
            }
        }

        synchronized Client.Json summary() {
            Client.Json inner = new Client.Json();
            queues.forEach((queue, seen) -> inner.put(queue, Arrays.asList(seen[0], seen[1], seen[2])));
            double seconds = (last - (first == 0 ? last : first)) / 1e9;
            return new Client.Json().put("consumed", count).put("bytes", bytes).put("seconds", seconds)
                .put("first_seconds", first == 0 ? null : (first - start) / 1e9).put("queues", inner);
        }

        @Override
        public synchronized void close() throws IOException {
            lines.close();
        }
    }
}
