"""RocketMQ's remoting protocol: frames in both header encodings, request and response codes, signatures, lenient JSON."""
