import java.net.InetSocketAddress;
import java.util.Map;
import org.apache.iceberg.TestTables;
import org.apache.iceberg.jdbc.JdbcCatalog;
import org.apache.iceberg.rest.RESTCatalogAdapter;
import org.apache.iceberg.rest.RESTCatalogServlet;
import org.eclipse.jetty.ee10.servlet.ServletContextHandler;
import org.eclipse.jetty.ee10.servlet.ServletHolder;
import org.eclipse.jetty.server.Server;

/** Iceberg's own REST catalog on a loopback port: {@code RestCatalog PORT DIRECTORY}. What it knows lies in the directory. */
public final class RestCatalog {
    public static void main(String[] words) throws Exception {
        JdbcCatalog catalog = new JdbcCatalog();
        catalog.initialize("rest", Map.of(
            "uri", "jdbc:sqlite:" + words[1] + "/catalog.db",
            "jdbc.schema-version", "V1",
            "warehouse", words[1],
            "io-impl", TestTables.LocalFileIO.class.getName()));
        ServletContextHandler context = new ServletContextHandler();
        context.addServlet(new ServletHolder(new RESTCatalogServlet(new RESTCatalogAdapter(catalog))), "/*");
        Server server = new Server(new InetSocketAddress("127.0.0.1", Integer.parseInt(words[0])));
        server.setHandler(context);
        server.start();
        server.join();
    }
}
