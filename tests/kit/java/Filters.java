import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.rocketmq.common.filter.ExpressionType;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;
import org.apache.rocketmq.filter.expression.MQFilterException;

/**
 * Evaluates filter expressions with RocketMQ's own classes.
 *
 * Input, one line each, texts in base64 of UTF-8: first "P name value name value ..." for each property map, then
 * "E expression". For each E one line of output: "refused", or one letter per map: T, F, N (unknown), X (failed).
 */
public final class Filters {
    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }

    private static final class Message implements EvaluationContext {
        private final Map<String, Object> values;

        Message(Map<String, Object> values) {
            this.values = values;
        }

        @Override
        public Object get(String name) {
            return values.get(name);
        }

        @Override
        public Map<String, Object> keyValues() {
            return values;
        }
    }

    private static char evaluate(Expression expression, Message message) {
        try {
            Object value = expression.evaluate(message);
            return value == null ? 'N' : Boolean.TRUE.equals(value) ? 'T' : Boolean.FALSE.equals(value) ? 'F' : '?';
        } catch (Throwable failure) {
            return 'X';
        }
    }

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.US_ASCII));
        PrintStream out = new PrintStream(System.out, false, "US-ASCII");
        List<Message> messages = new ArrayList<>();
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] parts = line.split(" ", -1);
            if (parts[0].equals("P")) {
                Map<String, Object> values = new HashMap<>();
                for (int i = 1; i + 1 < parts.length; i += 2) {
                    values.put(text(parts[i]), text(parts[i + 1]));
                }
                messages.add(new Message(values));
                continue;
            }
            StringBuilder answer = new StringBuilder();
            try {
                Expression expression = FilterFactory.INSTANCE.get(ExpressionType.SQL92).compile(text(parts[1]));
                for (Message message : messages) {
                    answer.append(evaluate(expression, message));
                }
            } catch (MQFilterException refusal) {
                answer = new StringBuilder("refused");
            }
            out.println(answer);
        }
        out.flush();
    }
}
