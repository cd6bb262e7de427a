import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.concurrent.ScheduledExecutorService;
import org.apache.rocketmq.broker.BrokerController;
import org.apache.rocketmq.broker.BrokerStartup;
import org.apache.rocketmq.store.DefaultMessageStore;

/**
 * The broker as it is published, except that what removes expired files runs for the first time after one interval
 * (cleanResourceInterval): the broker itself waits a minute, whatever its settings say. Arguments are those of BrokerStartup.
 */
public final class EarlyCleaner {
    public static void main(String[] arguments) throws Exception {
        BrokerController controller = BrokerStartup.createBrokerController(arguments);
        Object store = controller.getMessageStore();
        if (store instanceof DefaultMessageStore) {   // a plugin may have wrapped it
            for (Field field : DefaultMessageStore.class.getDeclaredFields()) {
                if (field.getType() == ScheduledExecutorService.class) {
                    field.setAccessible(true);
                    field.set(store, withoutLongDelays((ScheduledExecutorService) field.get(store)));
                }
            }
        }
        BrokerStartup.start(controller);
    }

    /** The same executor; a repeated task is never delayed for longer than its interval. */
    private static ScheduledExecutorService withoutLongDelays(ScheduledExecutorService executor) {
        return (ScheduledExecutorService) Proxy.newProxyInstance(
            EarlyCleaner.class.getClassLoader(), new Class<?>[] {ScheduledExecutorService.class}, (self, method, given) -> {
                if (method.getName().equals("scheduleAtFixedRate") || method.getName().equals("scheduleWithFixedDelay")) {
                    given[1] = Math.min((Long) given[1], (Long) given[2]);
                }
                try {
                    return method.invoke(executor, given);
                } catch (InvocationTargetException failed) {
                    throw failed.getCause();
                }
            });
    }
}
