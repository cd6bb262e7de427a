"""The metrics of the gateway: connections, frames, and what it answers from the archive; and of the key-value view."""

from __future__ import annotations

from tiered.metricregistry import REQUEST_SECONDS, MetricRegistry


class GatewayMetrics(MetricRegistry):
    """See ``tiered.metrics``."""

    def _declare_gateway(self) -> None:
        self.gateway_connections = self._gauge(
            "gateway_connections", "Client connections open now, by front: namesrv, broker", "front"
        )
        self.gateway_accepted = self._counter(
            "gateway_accepted", "Client connections accepted, by front", "front"
        )
        self.gateway_cut = self._counter(
            "gateway_cut", "Connections ended by the gateway, by reason", "reason"
        )
        self.gateway_requests = self._counter(
            "gateway_requests", "Requests of clients passed on, by class of their code", "kind"
        )
        self.gateway_answers = self._counter(
            "gateway_answers", "Frames that came from brokers and name servers"
        )
        self.gateway_bytes = self._counter(
            "gateway_bytes", "Bytes received, by origin: client, upstream", "side"
        )
        self.gateway_held = self._counter(
            "gateway_held",
            "Answers held and looked at, by outcome: replaced, passed, failed_closed",
            "outcome",
        )
        self.gateway_answer_bytes = self._gauge(
            "gateway_answer_bytes", "Bytes set aside for answers from the archive that are under way"
        )
        self.http_requests = self._counter("http_requests", "HTTP requests answered, by status", "status")
        self.http_cut = self._counter(
            "http_cut",
            "HTTP connections that ended before their answer did: client gone, too slow, or a fault",
        )
        self.gateway_brokers = self._gauge("gateway_brokers", "Broker addresses that the gateway listens for")
        self.gateway_brokers_away = self._gauge(
            "gateway_brokers_away", "Brokers that do not answer; their clients are refused until they do"
        )
        self.gateway_archive_open = self._gauge(
            "gateway_archive_open", "1 while the gateway can read the archive; hot traffic flows with 0 too"
        )

    def _declare_nodes(self) -> None:
        self.gateway_key_values = self._counter(
            "gateway_key_values",
            "Requests of the key-value view that the gateway answered, by kind and response code",
            "kind",
            "code",
        )
        self.node_reads = self._counter(
            "node_reads",
            "Reads that a gateway wanted of read nodes, by outcome: given, elsewhere (the node had nothing to give), failed,"
            " over_budget (the tenant has to wait), here (none answered)",
            "outcome",
        )
        self.node_answers = self._counter(
            "node_answers",
            "Reads that this read node was asked for, by what became of them",
            "status",
        )
        self.gateway_nodes = self._gauge(
            "gateway_nodes",
            "Read nodes that this gateway knows, by state: live (asked), joining, draining, unfit (another version), away,"
            " slow, failed",
            "state",
        )
        self.gateway_members = self._gauge(
            "gateway_members",
            "Read nodes by what the membership says: there, silent (lease not renewed), damaged (cannot be read)",
            "state",
        )
        self.membership_failures = self._counter(
            "membership_failures", "Looks at the membership, or renewals of a lease, that failed"
        )
        self.membership_age = self._gauge(
            "membership_age_seconds",
            "Time since the membership was last seen, by a gateway, or renewed, by a node",
        )
        self.node_member = self._gauge(
            "node_member", "1 for what this node has announced: joining, live, draining, none", "state"
        )
        self.node_connections = self._gauge("node_connections", "Connections of gateways to this read node")

    def _declare_answers(self) -> None:
        self.cold_answers = self._counter(
            "cold_answers",
            "Answers of brokers that the gateway looked at, by what was asked and outcome: archive, no_match, corrected, moved,"
            " hole, retry, refused, passed, told, unchecked (the broker's own, which may know less than the archive)",
            "what",
            "outcome",
        )
        self.cold_messages = self._counter("cold_messages", "Messages that consumers got from the archive")
        self.cold_bytes = self._counter("cold_bytes", "Bytes of those messages")
        self.cold_seconds = self._histogram(
            "cold_seconds",
            "Time from the broker's answer to the archive's, by what was asked",
            REQUEST_SECONDS,
            "what",
        )
        self.cold_unasked = self._counter(
            "cold_unasked",
            "Pulls deep below the broker's begin that it was not asked about, see gateway.cold_recheck_ms",
        )
        self.cold_holes = self._counter(
            "cold_holes", "Times a consumer was moved past messages that neither broker nor archive has"
        )
        self.cold_hole_messages = self._counter(
            "cold_hole_messages", "Queue offsets in those holes, counted each time"
        )
        self.gateway_bad_requests = self._counter(
            "gateway_bad_requests",
            "Requests, or brokers' answers, whose fields make no sense, by request code",
            "code",
        )
        self.gateway_broker_checks = self._counter(
            "gateway_broker_checks",
            "Comparisons of the broker's records with the archive's, by outcome: same, differs, unknown",
            "outcome",
        )
        self.gateway_broker_differs = self._gauge(
            "gateway_broker_differs",
            "1 while the broker is not the one that was archived, so that nothing archived is served to its clients",
        )
        self.gateway_garbage = self._counter(
            "gateway_garbage",
            "Broker answers to a view by id that did not hold the record, and were not passed on",
        )
        self.gateway_pop_skips = self._counter(
            "gateway_pop_skips", "POP answers that show that the broker skipped messages of a group"
        )
        self.gateway_pop_skipped_messages = self._counter(
            "gateway_pop_skipped_messages",
            "Queue offsets skipped in those answers; filtered messages count too",
        )

    def _declare_key_values(self) -> None:
        self.kv_messages = self._counter(
            "kv_messages", "Messages of namespaces applied to the key-value view"
        )
        self.kv_malformed = self._counter(
            "kv_malformed", "Messages of namespaces that are no writes, and changed nothing"
        )
        self.kv_off_queue = self._counter(
            "kv_off_queue", "Messages of namespaces in another queue than the first, left out"
        )
        self.kv_rejected = self._counter("kv_rejected", "Writes whose condition did not hold")
        self.kv_applied_offset = self._gauge(
            "kv_applied_bytes", "Physical offset up to which the log is applied"
        )
        self.kv_lag_bytes = self._gauge("kv_lag_bytes", "Bytes of the log that are not applied")
        self.kv_stale_seconds = self._gauge(
            "kv_stale_seconds", "Time since the view was last seen at the log's end"
        )
        self.kv_standing = self._gauge(
            "kv_standing", "1 while the view of this read node stands still; /status says why"
        )
        self.kv_broken = self._gauge(
            "kv_broken_namespaces", "Namespaces that lack messages, and are not served"
        )
        self.kv_rebuilt = self._gauge(
            "kv_rebuilt", "How often the view began anew because the log was another one"
        )
