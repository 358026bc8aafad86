// A program around the official Go SDK that the conformance driver steers (protocol: ../README.md).
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	rmq "github.com/apache/rocketmq-clients/golang/v5"
	"github.com/apache/rocketmq-clients/golang/v5/credentials"
)

var out sync.Mutex

type event map[string]any

func say(e event) {
	e["t"] = time.Now().UnixMilli()
	line, _ := json.Marshal(e)
	out.Lock()
	defer out.Unlock()
	fmt.Println(string(line))
}

func bodyOf(n int) string {
	text := fmt.Sprintf("message %d ", n)
	return text + strings.Repeat(".", 256-len(text))
}

func report(via string, view *rmq.MessageView) {
	properties := view.GetProperties()
	n, err := strconv.Atoi(properties["n"])
	if err != nil {
		n = -1
	}
	keys, tag := view.GetKeys(), view.GetTag()
	good := string(view.GetBody()) == bodyOf(n) && tag != nil && *tag == fmt.Sprintf("tag-%d", n%3) &&
		len(keys) == 1 && keys[0] == fmt.Sprintf("key-%d", n) && properties["sdk"] == "go"
	say(event{"e": "got", "via": via, "n": n, "id": view.GetMessageId(), "attempt": view.GetDeliveryAttempt(), "good": good})
}

func produce(producer rmq.Producer, topic string, first, count int, rate float64) {
	start := time.Now()
	for i := 0; i < count; i++ {
		n := first + i
		if rate > 0 {
			time.Sleep(time.Until(start.Add(time.Duration(float64(i) / rate * float64(time.Second)))))
		}
		message := &rmq.Message{Topic: topic, Body: []byte(bodyOf(n))}
		message.SetTag(fmt.Sprintf("tag-%d", n%3))
		message.SetKeys(fmt.Sprintf("key-%d", n))
		message.AddProperty("n", strconv.Itoa(n))
		message.AddProperty("sdk", "go")
		began := time.Now()
		receipts, err := producer.Send(context.Background(), message)
		if err != nil {
			say(event{"e": "failed", "n": n, "error": err.Error()})
		} else {
			say(event{"e": "sent", "n": n, "id": receipts[0].MessageID, "ms": time.Since(began).Milliseconds()})
		}
	}
	say(event{"e": "produced"})
}

func receive(consumer rmq.SimpleConsumer) {
	for {
		views, err := consumer.Receive(context.Background(), 32, 20*time.Second)
		if err != nil {
			// An empty long poll is an error for this SDK.
			if !strings.Contains(err.Error(), "MESSAGE_NOT_FOUND") {
				say(event{"e": "error", "where": "receive", "error": err.Error()})
				time.Sleep(200 * time.Millisecond)
			}
			continue
		}
		for _, view := range views {
			report("simple", view)
			if err := consumer.Ack(context.Background(), view); err != nil {
				say(event{"e": "error", "where": "ack", "error": err.Error()})
			}
		}
	}
}

func fatal(where string, err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, where, err)
		os.Exit(1)
	}
}

func main() {
	endpoints := flag.String("endpoints", "", "")
	topic := flag.String("topic", "", "")
	simpleGroup := flag.String("simple-group", "", "")
	pushGroup := flag.String("push-group", "", "")
	flag.Parse()
	rmq.ResetLogger()
	config := func(group string) *rmq.Config {
		return &rmq.Config{Endpoint: *endpoints, ConsumerGroup: group, Credentials: &credentials.SessionCredentials{}}
	}
	all := map[string]*rmq.FilterExpression{*topic: rmq.SUB_ALL}

	producer, err := rmq.NewProducer(config(""), rmq.WithTopics(*topic))
	fatal("producer", err)
	fatal("producer", producer.Start())
	simple, err := rmq.NewSimpleConsumer(config(*simpleGroup), rmq.WithSimpleAwaitDuration(5*time.Second), rmq.WithSimpleSubscriptionExpressions(all))
	fatal("simple consumer", err)
	fatal("simple consumer", simple.Start())
	push, err := rmq.NewPushConsumer(config(*pushGroup), rmq.WithPushAwaitDuration(5*time.Second), rmq.WithPushSubscriptionExpressions(all),
		rmq.WithPushMessageListener(&rmq.FuncMessageListener{Consume: func(view *rmq.MessageView) rmq.ConsumerResult {
			report("push", view)
			return rmq.SUCCESS
		}}))
	fatal("push consumer", err)
	fatal("push consumer", push.Start())
	go receive(simple)
	say(event{"e": "ready"})

	jobs := make(chan [3]float64, 16)
	go func() {
		for job := range jobs {
			produce(producer, *topic, int(job[0]), int(job[1]), job[2])
		}
	}()
	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		words := strings.Fields(lines.Text())
		if len(words) == 4 && words[0] == "produce" {
			var job [3]float64
			for i := range job {
				job[i], _ = strconv.ParseFloat(words[i+1], 64)
			}
			jobs <- job
		} else if len(words) > 0 && words[0] == "quit" {
			break
		}
	}
	say(event{"e": "bye"})
	os.Exit(0)
}
