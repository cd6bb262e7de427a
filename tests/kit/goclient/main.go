// consume is a push consumer made with RocketMQ's own client for Go. It writes a line of JSON for each message that it is handed,
// as the Java client of the tests does, and ends when it has so many and a little longer, or when none came for a while.
package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"hash/crc32"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	rocketmq "github.com/apache/rocketmq-client-go/v2"
	"github.com/apache/rocketmq-client-go/v2/consumer"
	"github.com/apache/rocketmq-client-go/v2/primitive"
	"github.com/apache/rocketmq-client-go/v2/rlog"
)

const (
	longer = 3 * time.Second // after the last message that is wanted: one too many would be seen
	look   = 50 * time.Millisecond
)

// line has the names that the Java client gives the same things.
type line struct {
	Kind           string            `json:"kind"`
	Topic          string            `json:"topic"`
	Keys           string            `json:"keys"`
	Tags           string            `json:"tags"`
	UniqueKey      string            `json:"unique_key"`
	Properties     map[string]string `json:"properties"`
	BodyBytes      int               `json:"body_bytes"`
	BodyCRC        uint32            `json:"body_crc"`
	BodySHA256     string            `json:"body_sha256"`
	QueueID        int               `json:"queue_id"`
	QueueOffset    int64             `json:"queue_offset"`
	MsgID          string            `json:"msg_id"`
	OffsetMsgID    string            `json:"offset_msg_id"`
	StoreTimestamp int64             `json:"store_timestamp"`
	PhysicalOffset int64             `json:"physical_offset"`
}

// written is the file, and what is known of it.
type written struct {
	sync.Mutex
	out   *bufio.Writer
	count int
	last  time.Time
}

func (w *written) add(messages []*primitive.MessageExt) error {
	w.Lock()
	defer w.Unlock()
	for _, message := range messages {
		sum := sha256.Sum256(message.Body)
		data, err := json.Marshal(line{
			Kind: "received", Topic: message.Topic, Keys: message.GetKeys(), Tags: message.GetTags(),
			UniqueKey: message.GetProperty(primitive.PropertyUniqueClientMessageIdKeyIndex), Properties: message.GetProperties(),
			BodyBytes: len(message.Body), BodyCRC: crc32.ChecksumIEEE(message.Body) & 0x7fffffff, BodySHA256: hex.EncodeToString(sum[:]),
			QueueID: message.Queue.QueueId, QueueOffset: message.QueueOffset, MsgID: message.MsgId, OffsetMsgID: message.OffsetMsgId,
			StoreTimestamp: message.StoreTimestamp, PhysicalOffset: message.CommitLogOffset,
		})
		if err != nil {
			return err
		}
		if _, err = w.out.Write(append(data, '\n')); err != nil {
			return err
		}
		w.count++
	}
	w.last = time.Now()
	return w.out.Flush()
}

func (w *written) seen() (int, time.Time) {
	w.Lock()
	defer w.Unlock()
	return w.count, w.last
}

func run() error {
	namesrv := flag.String("namesrv", "127.0.0.1:9876", "name servers, host:port;host:port")
	topic := flag.String("topic", "", "what to read")
	group := flag.String("group", "", "who reads")
	sub := flag.String("sub", "*", "which tags")
	path := flag.String("out", "", "the file that is written")
	wanted := flag.Int("n", 0, "end after so many messages; 0: not by their number")
	idle := flag.Duration("idle", 60*time.Second, "end when none came for so long")
	rate := flag.Int("rate", 0, "take no more than so many messages a second in one goroutine; 0: as they come")
	orderly := flag.Bool("orderly", false, "one queue, one message after the other")
	cached := flag.Int64("cached", 1000, "pull no more while so many messages of a queue wait to be taken")
	since := flag.Int64("since", -1, "a new group begins at this time, ms since 1970; without: at the first message")
	flag.Parse()

	goroutines := 20 // the client's default
	if *rate > 0 {
		goroutines = 1
	}
	rlog.SetLogLevel("error")
	file, err := os.Create(*path)
	if err != nil {
		return err
	}
	defer file.Close()
	got := &written{out: bufio.NewWriter(file), last: time.Now()}
	failed := make(chan error, 1)
	from, moment := consumer.ConsumeFromFirstOffset, ""
	if *since >= 0 {
		from, moment = consumer.ConsumeFromTimestamp, time.UnixMilli(*since).UTC().Format("20060102150405")
	}
	client, err := rocketmq.NewPushConsumer(
		consumer.WithGroupName(*group),
		consumer.WithNameServer(strings.Split(*namesrv, ";")),
		consumer.WithConsumeFromWhere(from),
		consumer.WithConsumeTimestamp(moment),
		consumer.WithPullThresholdForQueue(*cached),
		consumer.WithConsumerOrder(*orderly),
		consumer.WithConsumeGoroutineNums(goroutines),
		consumer.WithInstance(fmt.Sprintf("go-%d", os.Getpid())),
	)
	if err != nil {
		return err
	}
	selector := consumer.MessageSelector{Type: consumer.TAG, Expression: *sub}
	err = client.Subscribe(*topic, selector,
		func(_ context.Context, messages ...*primitive.MessageExt) (consumer.ConsumeResult, error) {
			if err := got.add(messages); err != nil {
				select {
				case failed <- err:
				default:
				}
				return consumer.ConsumeRetryLater, err
			}
			if *rate > 0 {
				time.Sleep(time.Duration(len(messages)) * time.Second / time.Duration(*rate))
			}
			return consumer.ConsumeSuccess, nil
		})
	if err != nil {
		return err
	}
	if err = client.Start(); err != nil {
		return err
	}
	stop := make(chan os.Signal, 1)
	signal.Notify(stop, syscall.SIGTERM, syscall.SIGINT)
	why := wait(got, *wanted, *idle, stop, failed)
	if err = client.Shutdown(); err != nil {
		return err
	}
	count, _ := got.seen()
	return json.NewEncoder(os.Stdout).Encode(map[string]any{"consumed": count, "ended": why})
}

func wait(got *written, wanted int, idle time.Duration, stop chan os.Signal, failed chan error) string {
	for {
		select {
		case <-stop:
			return "signal"
		case err := <-failed:
			return err.Error()
		case <-time.After(look):
		}
		count, last := got.seen()
		if wanted > 0 && count >= wanted && time.Since(last) > longer {
			return "all"
		}
		if time.Since(last) > idle {
			return "idle"
		}
	}
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
