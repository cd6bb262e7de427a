"""Talking to a broker, and to the name servers that know it, over RocketMQ's remoting.

Owns: one blocking client for many requests at once (``client``: bounded waits, bounded frames, TLS, signatures), what a broker
is asked and what its answers mean (``questions``), where messages to a topic may go (``routes``), a message as a send request
and which of its properties travel (``send``), trust in certificates (``tls``).
Does not own: frames, codes and RocketMQ's nearly-JSON (``codec.remoting``), the gateway's own connections, which live on its
event loop (``gateway.transport``), when to try again and what to do with a refusal (the caller), any settings.
Invariant: every wait has an end, and an answer that did not come in time is never taken for another's: its connection is given
up. That an answer is missing does not say that the broker did not do as it was asked.
Threads: none of its own; a client is for one thread.

::

    client = RemotingClient("127.0.0.1:10911", clock, Dial(5.0, credentials=keys))
    facts = Broker(client).facts()
    [answer] = client.ask_all([Sending(topic, 0, body, properties, "GROUP").request()])
"""
