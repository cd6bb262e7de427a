import java.io.BufferedWriter;
import java.io.IOException;
import java.io.PrintStream;
import java.io.Writer;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Paths;
import java.nio.file.StandardOpenOption;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicLong;
import java.util.concurrent.atomic.AtomicReference;
import java.util.zip.CRC32;
import org.apache.rocketmq.client.ClientConfig;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.LocalTransactionState;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.client.producer.TransactionListener;
import org.apache.rocketmq.client.producer.TransactionMQProducer;
import org.apache.rocketmq.common.TopicConfig;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.Message;
import org.apache.rocketmq.common.message.MessageClientExt;
import org.apache.rocketmq.common.message.MessageExt;
import org.apache.rocketmq.common.message.MessageQueue;
import org.apache.rocketmq.tools.admin.DefaultMQAdminExt;

/**
 * Drives the unmodified RocketMQ Java client, 4.9 or 5.x, for the tests: {@code java Client COMMAND key=value ...}.
 *
 * <p>Every command takes {@code namesrv=host:port} and {@code broker=host:port}, and ends with one JSON line on standard
 * output that sums up what happened. Commands that send or receive write one JSON line per message to the file
 * {@code out=}: what the client sent and what the broker acknowledged, so that a test can compare without trusting either.
 * {@code body_crc} is the CRC-32 that a record holds, {@code body_sha256} covers the same bytes.
 *
 * <pre>
 *   topics      topics=A,B queues=4
 *   produce     topic= n= queues= min= max= [rate=] [threads=] [batch=] [seed=] [tags=A,B] [keys=1] [unicode=0] [body=words|random|zeros]
 *               [first=0] [retry_seconds=0] [digest=1] [compress_over=]
 *   batch       produce with batch=8
 *   delay       produce with level=1 : delayed messages
 *   transaction topic= n= : every third message is rolled back, the rest committed
 *   retry       topic= group= n= [delay_level=1] [every=1] : gives every such message back once; ends after n came a second time
 *   consume     topic= group= [n=] [idle=5] [first_seconds=20] [sub=*] : push consumer; ends after n messages or idle seconds without one
 *   push        topic= group= [mode=concurrent|orderly] [model=clustering|broadcasting] [from=first|last|timestamp] [timestamp=ms]
 *               [sub=*] [sql=] [threads=1] [batch=32] [pull=32] [cached=1000] : push consumer
 *   lite        topic= group= [start=begin|timestamp|committed|OFFSET|0:OFFSET,1:OFFSET] [timestamp=ms] [queue_ids=] [pull=32]
 *               [commit=0] : lite pull consumer, queues assigned
 *   pull        topic= group= [start=begin|timestamp|OFFSET|0:OFFSET,1:OFFSET] [timestamp=ms] [queue_ids=] [pull=32] [sub=*]
 *               [failures=] [lite_queue=] : classic pull consumer; its summary counts the statuses it was given, and has the last failure; it
 *               ends after so many failed pulls; lite_queue= is pulled in the topic's place, as MQTT bridges do
 *               push, lite and pull also take [n=] [linger=0] [idle=5] [first_seconds=60] [rate=] [persist_ms=5000] [instance=]:
 *               each ends linger seconds after n messages, or idle seconds after the last one
 *               [crash_after=] : end like kill -9 once so many are written down
 *               [access_key= secret_key=] : requests are signed
 *               [control=FILE] : a file that may hold the word pause or stop; anything else: go on
 *   offsets     topics= queues= : minimum and maximum of each queue
 *   expire      : delete expired files now
 *   setconf     k= v= : change a setting of the running broker
 * </pre>
 */
public final class Client {
    private static final String[] WORDS = ("archive broker commitlog consumer cold segment offset queue replay order payment "
        + "ledger ship index topic group batch storage tier message").split(" ");
    private static final String[] UNICODE = {"süd", "东区", "север", "ελλάδα", "🚢 hafen"};
    static final PrintStream OUT = new PrintStream(System.out, true);

    private static final Map<String, String> OPTIONS = new HashMap<>();

    private Client() {
    }

    private interface Action {
        void run() throws Exception;
    }

    public static void main(String[] arguments) {
        for (int i = 1; i < arguments.length; i++) {
            String[] pair = arguments[i].split("=", 2);
            OPTIONS.put(pair[0], pair.length > 1 ? pair[1] : "1");
        }
        int code = 0;
        try {
            run(arguments.length > 0 ? arguments[0] : "");
        } catch (Throwable error) {
            error.printStackTrace();
            code = 1;
        }
        System.err.flush();
        System.exit(code);   // the client's own threads are not daemons
    }

    private static void run(String command) throws Exception {
        Map<String, Action> actions = new HashMap<>();
        actions.put("topics", Client::topics);
        actions.put("produce", Client::produce);
        actions.put("batch", () -> {
            OPTIONS.putIfAbsent("batch", "8");
            produce();
        });
        actions.put("delay", () -> {
            OPTIONS.putIfAbsent("level", "1");
            produce();
        });
        actions.put("transaction", Client::transaction);
        actions.put("retry", Client::retry);
        actions.put("consume", Client::consume);
        actions.put("push", Consumers::push);
        actions.put("lite", Consumers::lite);
        actions.put("pull", Consumers::pull);
        actions.put("offsets", Client::offsets);
        actions.put("expire", Client::expire);
        actions.put("setconf", Client::setconf);
        Action action = actions.get(command);
        if (action == null) {
            throw new IllegalArgumentException("unknown command '" + command + "'; known: " + new TreeMap<>(actions).keySet());
        }
        action.run();
    }

    // ---- options

    static String text(String key, String otherwise) {
        return OPTIONS.getOrDefault(key, otherwise);
    }

    static String need(String key) {
        String value = OPTIONS.get(key);
        if (value == null) {
            throw new IllegalArgumentException("option " + key + "= is missing");
        }
        return value;
    }

    static int number(String key, int otherwise) {
        return Integer.parseInt(text(key, Integer.toString(otherwise)));
    }

    // ---- clients

    static <T extends ClientConfig> T configured(T client) {
        client.setNamesrvAddr(need("namesrv"));
        client.setClientIP("127.0.0.1");
        client.setInstanceName("kit" + ProcessHandle.current().pid() + "-" + System.nanoTime());
        client.setVipChannelEnabled(false);
        client.setPollNameServerInterval(1_000);   // a %RETRY% topic appears while its consumer waits
        client.setHeartbeatBrokerInterval(3_000);  // a subscription that the broker missed is told again soon
        client.setMqClientApiTimeout(15_000);      // a loaded machine is no reason to give up
        return client;
    }

    private static DefaultMQAdminExt admin() throws Exception {
        DefaultMQAdminExt admin = configured(new DefaultMQAdminExt(15_000));
        admin.start();
        return admin;
    }

    private static <T extends DefaultMQProducer> T started(T producer) throws Exception {
        configured(producer);
        producer.setSendMsgTimeout(number("timeout_ms", 10_000));
        producer.setMaxMessageSize(16 << 20);
        producer.setCompressMsgBodyOverHowmuch(number("compress_over", 16 << 20));
        producer.start();
        return producer;
    }

    private static DefaultMQPushConsumer consumer(MessageListenerConcurrently listener) throws Exception {
        DefaultMQPushConsumer consumer = configured(new DefaultMQPushConsumer(need("group")));
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(need("topic"), text("sub", "*"));
        consumer.registerMessageListener(listener);
        consumer.start();
        return consumer;
    }

    // ---- administration

    private static void topics() throws Exception {
        DefaultMQAdminExt admin = admin();
        for (String topic : need("topics").split(",")) {
            TopicConfig config = new TopicConfig(topic);
            config.setReadQueueNums(number("queues", 4));
            config.setWriteQueueNums(number("queues", 4));
            admin.createAndUpdateTopicConfig(need("broker"), config);
        }
        admin.shutdown();
        OUT.println(new Json().put("topics", need("topics")));
    }

    private static void offsets() throws Exception {
        DefaultMQAdminExt admin = admin();
        for (String topic : need("topics").split(",")) {
            for (int queue = 0; queue < number("queues", 4); queue++) {
                MessageQueue q = new MessageQueue(topic, brokerName(), queue);
                OUT.println(new Json().put("topic", topic).put("queue_id", queue).put("min", admin.minOffset(q)).put("max", admin.maxOffset(q)));
            }
        }
        admin.shutdown();
    }

    private static void expire() throws Exception {
        DefaultMQAdminExt admin = admin();
        boolean log = admin.deleteExpiredCommitLogByAddr(need("broker"));
        boolean queues = admin.cleanExpiredConsumerQueueByAddr(need("broker"));
        admin.shutdown();
        OUT.println(new Json().put("commitlog", Boolean.toString(log)).put("consumequeue", Boolean.toString(queues)));
    }

    private static void setconf() throws Exception {
        DefaultMQAdminExt admin = admin();
        Properties properties = new Properties();
        properties.put(need("k"), need("v"));
        admin.updateBrokerConfig(need("broker"), properties);
        admin.shutdown();
        OUT.println(new Json().put("set", need("k")).put("to", need("v")));
    }

    private static String brokerName() {
        return text("broker_name", "broker-a");
    }

    // ---- producing

    /** Bodies are taken from a pool, so that making them never limits the rate; message k always gets the same one. */
    private static byte[][] bodies() {
        Random random = new Random(number("seed", 1));
        int min = number("min", 100);
        int max = Math.max(min, number("max", Math.max(min, 1000)));
        byte[][] pool = new byte[max > (1 << 20) ? 5 : 257][];
        for (int i = 0; i < pool.length; i++) {
            byte[] body = new byte[min + (max > min ? random.nextInt(max - min + 1) : 0)];
            if (text("body", "words").equals("random")) {
                random.nextBytes(body);
            } else if (text("body", "words").equals("words")) {
                for (int at = 0; at < body.length; ) {
                    String part = WORDS[random.nextInt(WORDS.length)] + (random.nextInt(12) == 0 ? "=" + random.nextInt(100) + ";" : " ");
                    byte[] word = part.getBytes(StandardCharsets.US_ASCII);
                    int length = Math.min(word.length, body.length - at);
                    System.arraycopy(word, 0, body, at, length);
                    at += length;
                }
            }
            pool[i] = body;
        }
        return pool;
    }

    private static Message message(String topic, int sequence, byte[] body) {
        Message message = new Message(topic, body);
        String tags = text("tags", "");
        if (!tags.isEmpty()) {
            String[] choice = tags.split(",");
            message.setTags(choice[sequence % choice.length]);
        }
        if (!text("keys", "1").equals("0")) {
            message.setKeys(sequence % 10 == 0 ? "order-" + sequence + " user-" + sequence % 200 : "order-" + sequence);
        }
        message.putUserProperty("seq", Integer.toString(sequence));
        if (text("unicode", "0").equals("1")) {
            message.putUserProperty("region", UNICODE[sequence % UNICODE.length]);
            message.putUserProperty("名前", "値" + sequence);
        }
        if (OPTIONS.containsKey("level")) {
            message.setDelayTimeLevel(number("level", 1));
        }
        return message;
    }

    private static void produce() throws Exception {
        String topic = need("topic");
        int count = number("n", 1000);
        int batch = number("batch", 1);
        int rate = number("rate", 0);
        int queues = number("queues", 4);
        int first = number("first", 0);
        byte[][] pool = bodies();
        DefaultMQProducer producer = started(new DefaultMQProducer("kit_producer"));
        AtomicInteger next = new AtomicInteger();
        AtomicLong sent = new AtomicLong();
        AtomicLong failed = new AtomicLong();
        AtomicReference<Throwable> broken = new AtomicReference<>();
        long start = System.nanoTime();
        try (Lines lines = new Lines(rate > 0)) {
            List<Thread> threads = new ArrayList<>();
            for (int t = 0; t < number("threads", 2); t++) {
                Thread thread = new Thread(() -> {
                    try {
                        for (int from = next.getAndAdd(batch); from < count && broken.get() == null; from = next.getAndAdd(batch)) {
                            pace(start, from, rate);
                            List<Message> messages = new ArrayList<>();
                            for (int k = from; k < Math.min(count, from + batch); k++) {
                                messages.add(message(topic, first + k, pool[k % pool.length]));
                            }
                            MessageQueue queue = new MessageQueue(topic, brokerName(), (from / batch) % queues);
                            sent.addAndGet(send(producer, queue, messages, lines, failed));
                        }
                    } catch (Throwable error) {
                        broken.compareAndSet(null, error);
                    }
                });
                thread.start();
                threads.add(thread);
            }
            for (Thread thread : threads) {
                thread.join();
            }
        }
        double seconds = (System.nanoTime() - start) / 1e9;
        OUT.println(new Json().put("sent", sent.get()).put("failed_calls", failed.get()).put("seconds", seconds));
        producer.shutdown();
        if (broken.get() != null) {
            throw new IOException("producing stopped after " + sent.get() + " messages", broken.get());
        }
    }

    private static void pace(long start, int index, int rate) throws InterruptedException {
        if (rate > 0) {
            long wait = start + index * 1_000_000_000L / rate - System.nanoTime();
            if (wait > 0) {
                Thread.sleep(wait / 1_000_000, (int) (wait % 1_000_000));
            }
        }
    }

    /** Sends until the broker says OK, or gives up after retry_seconds. A failed call may have stored the messages all the same. */
    private static int send(DefaultMQProducer producer, MessageQueue queue, List<Message> messages, Lines lines, AtomicLong failed)
        throws Exception {
        long giveUp = System.nanoTime() + number("retry_seconds", 0) * 1_000_000_000L;
        for (;;) {
            try {
                SendResult result = messages.size() == 1 ? producer.send(messages.get(0), queue) : producer.send(messages, queue);
                if (result.getSendStatus() != SendStatus.SEND_OK) {
                    throw new IOException("broker answered " + result.getSendStatus());
                }
                String[] ids = result.getMsgId().split(",");
                String[] offsetIds = result.getOffsetMsgId().split(",");
                String kind = messages.size() > 1 ? "batch" : OPTIONS.containsKey("level") ? "delay" : "normal";
                for (int i = 0; i < messages.size(); i++) {
                    Json line = describe(messages.get(i), kind).put("queue_id", result.getMessageQueue().getQueueId());
                    line.put("queue_offset", result.getQueueOffset() + i).put("msg_id", ids[Math.min(i, ids.length - 1)]);
                    lines.write(line.put("offset_msg_id", offsetIds[Math.min(i, offsetIds.length - 1)]));
                }
                return messages.size();
            } catch (InterruptedException error) {
                throw error;
            } catch (Exception error) {
                failed.incrementAndGet();
                for (Message message : messages) {
                    lines.write(describe(message, "unknown").put("queue_id", queue.getQueueId()).put("error", error.toString()));
                }
                if (System.nanoTime() > giveUp) {
                    throw error;
                }
                Thread.sleep(50);
            }
        }
    }

    private static void transaction() throws Exception {
        String topic = need("topic");
        byte[][] pool = bodies();
        TransactionMQProducer producer = new TransactionMQProducer("kit_transactions");
        producer.setTransactionListener(new TransactionListener() {
            @Override
            public LocalTransactionState executeLocalTransaction(Message message, Object number) {
                return outcome((Integer) number);
            }

            @Override
            public LocalTransactionState checkLocalTransaction(MessageExt message) {
                return outcome(Integer.parseInt(message.getUserProperty("seq")));
            }
        });
        started(producer);
        int first = number("first", 0);
        int rolledBack = 0;
        int count = number("n", 30);
        try (Lines lines = new Lines(false)) {
            for (int k = first; k < first + count; k++) {
                Message message = message(topic, k, pool[k % pool.length]);
                SendResult result = producer.sendMessageInTransaction(message, k);
                boolean commit = outcome(k) == LocalTransactionState.COMMIT_MESSAGE;
                rolledBack += commit ? 0 : 1;
                Json line = describe(message, commit ? "commit" : "rollback").put("queue_id", result.getMessageQueue().getQueueId());
                lines.write(line.put("queue_offset", result.getQueueOffset()).put("msg_id", result.getMsgId()));
            }
        }
        Thread.sleep(500);   // the end of a transaction is sent one way; let it arrive
        OUT.println(new Json().put("sent", count).put("committed", count - rolledBack).put("rolled_back", rolledBack));
        producer.shutdown();
    }

    private static LocalTransactionState outcome(int sequence) {
        return sequence % 3 == 0 ? LocalTransactionState.ROLLBACK_MESSAGE : LocalTransactionState.COMMIT_MESSAGE;
    }

    // ---- consuming

    private static void retry() throws Exception {
        int want = number("n", 10);
        int every = number("every", 1);
        AtomicInteger givenBack = new AtomicInteger();
        AtomicInteger cameAgain = new AtomicInteger();
        try (Lines lines = new Lines(true)) {
            DefaultMQPushConsumer consumer = consumer((messages, context) -> {
                MessageExt message = messages.get(0);   // one at a time is the client's default
                if (message.getReconsumeTimes() == 0) {
                    String sequence = message.getUserProperty("seq");
                    boolean chosen = sequence != null && Integer.parseInt(sequence) % every == 0;
                    if (chosen && givenBack.incrementAndGet() <= want) {
                        lines.write(received(message).put("outcome", "given back"));
                        context.setDelayLevelWhenNextConsume(number("delay_level", 1));
                        return ConsumeConcurrentlyStatus.RECONSUME_LATER;
                    }
                } else {
                    lines.write(received(message).put("outcome", "came again"));
                    cameAgain.incrementAndGet();
                }
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            long limit = System.nanoTime() + number("limit_seconds", 60) * 1_000_000_000L;
            while (cameAgain.get() < want && System.nanoTime() < limit) {
                Thread.sleep(50);
            }
            consumer.shutdown();
        }
        OUT.println(new Json().put("given_back", Math.min(want, givenBack.get())).put("came_again", cameAgain.get()));
        if (cameAgain.get() < want) {
            throw new IOException("only " + cameAgain.get() + " of " + want + " messages came a second time");
        }
    }

    private static void consume() throws Exception {
        long want = number("n", Integer.MAX_VALUE);
        AtomicLong count = new AtomicLong();
        AtomicLong bytes = new AtomicLong();
        AtomicLong last = new AtomicLong(System.nanoTime());
        long start = System.nanoTime();
        try (Lines lines = new Lines(false)) {
            DefaultMQPushConsumer consumer = consumer((messages, context) -> {
                for (MessageExt message : messages) {
                    bytes.addAndGet(message.getBody().length);
                    lines.write(received(message));
                }
                count.addAndGet(messages.size());
                last.set(System.nanoTime());
                return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
            });
            long idle = number("idle", 5) * 1_000_000_000L;
            long first = number("first_seconds", 20) * 1_000_000_000L;   // a new group waits for its first rebalance
            while (count.get() < want && System.nanoTime() - last.get() < (count.get() > 0 ? idle : Math.max(idle, first))) {
                Thread.sleep(20);
            }
            consumer.shutdown();
        }
        double seconds = (last.get() - start) / 1e9;
        OUT.println(new Json().put("consumed", count.get()).put("bytes", bytes.get()).put("seconds", seconds));
    }

    // ---- what is written down

    private static Json describe(Message message, String kind) {
        Json line = new Json().put("kind", kind).put("topic", message.getTopic()).put("keys", message.getKeys()).put("tags", message.getTags());
        line.put("unique_key", message.getProperty("UNIQ_KEY")).put("properties", message.getProperties());
        return body(line, message.getBody());
    }

    static Json received(MessageExt message) {
        Json line = describe(message, "received").put("queue_id", message.getQueueId()).put("queue_offset", message.getQueueOffset());
        line.put("msg_id", message.getMsgId()).put("store_timestamp", message.getStoreTimestamp());
        line.put("reconsume_times", message.getReconsumeTimes()).put("physical_offset", message.getCommitLogOffset());
        String id = message instanceof MessageClientExt ? ((MessageClientExt) message).getOffsetMsgId() : null;
        return line.put("offset_msg_id", id);
    }

    private static Json body(Json line, byte[] body) {
        CRC32 crc = new CRC32();
        crc.update(body, 0, body.length);
        line.put("body_bytes", body.length).put("body_crc", crc.getValue() & 0x7FFFFFFFL);
        if (text("digest", "1").equals("1")) {
            try {
                StringBuilder hex = new StringBuilder();
                for (byte b : MessageDigest.getInstance("SHA-256").digest(body)) {
                    hex.append(Character.forDigit((b >> 4) & 15, 16)).append(Character.forDigit(b & 15, 16));
                }
                line.put("body_sha256", hex.toString());
            } catch (java.security.NoSuchAlgorithmException error) {
                throw new IllegalStateException(error);
            }
        }
        return line;
    }

    /** The file out=, one JSON object a line; without out= nothing is written. */
    static final class Lines implements AutoCloseable {
        private final Writer writer;
        private final boolean flush;

        Lines(boolean flush) throws IOException {
            String path = OPTIONS.get("out");
            this.flush = flush;
            this.writer = path == null ? null : new BufferedWriter(Files.newBufferedWriter(
                Paths.get(path), StandardCharsets.UTF_8, StandardOpenOption.CREATE, StandardOpenOption.APPEND), 1 << 16);
        }

        synchronized void write(Json line) {
            if (writer == null) {
                return;
            }
            try {
                writer.write(line + "\n");
                if (flush) {
                    writer.flush();
                }
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }

        synchronized void flush() {
            try {
                if (writer != null) {
                    writer.flush();
                }
            } catch (IOException error) {
                throw new IllegalStateException(error);
            }
        }

        @Override
        public synchronized void close() throws IOException {
            if (writer != null) {
                writer.close();
            }
        }
    }

    /** A JSON object, written left to right. */
    static final class Json {
        private final StringBuilder out = new StringBuilder("{");

        Json put(String key, Object value) {
            out.append(out.length() > 1 ? "," : "").append(quoted(key)).append(":").append(rendered(value));
            return this;
        }

        private static String rendered(Object value) {
            if (value == null || value instanceof Number || value instanceof Json) {
                return String.valueOf(value);
            }
            if (value instanceof Iterable) {
                StringBuilder inner = new StringBuilder();
                ((Iterable<?>) value).forEach(v -> inner.append(inner.length() > 0 ? "," : "").append(rendered(v)));
                return "[" + inner + "]";
            }
            if (value instanceof Map) {
                Json inner = new Json();
                ((Map<?, ?>) value).forEach((k, v) -> inner.put(String.valueOf(k), v));
                return inner.toString();
            }
            return quoted(value.toString());
        }

        private static String quoted(String text) {
            StringBuilder quoted = new StringBuilder("\"");
            for (char c : text.toCharArray()) {
                if (c == '"' || c == '\\') {
                    quoted.append('\\').append(c);
                } else if (c < ' ') {
                    quoted.append(String.format("\\u%04x", (int) c));
                } else {
                    quoted.append(c);
                }
            }
            return quoted.append('"').toString();
        }

        @Override
        public String toString() {
            return out + "}";
        }
    }
}
