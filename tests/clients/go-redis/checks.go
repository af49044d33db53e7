// The checks: what a client can rely on while the nodes stay the same.

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

type check struct {
	name string
	run  func(context.Context, *redis.ClusterClient)
}

// broken is the panic value of a check that fails.
type broken struct{ error }

// made runs a check, and returns why it fails, or nil.
func made(check check, client *redis.ClusterClient) (err error) {
	defer func() {
		if caught := recover(); caught != nil {
			reason, is := caught.(broken)
			if !is {
				panic(caught)
			}
			err = reason
		}
	}()
	check.run(context.Background(), client)
	return nil
}

func must(err error) {
	if err != nil {
		panic(broken{err})
	}
}

func same[T any](actual T, expected T) {
	if !reflect.DeepEqual(actual, expected) {
		panic(broken{fmt.Errorf("%.200q instead of %.200q", fmt.Sprint(actual), fmt.Sprint(expected))})
	}
}

// answers checks the answer to a command.
func answers[T any](command interface{ Result() (T, error) }, expected T) {
	actual, err := command.Result()
	must(err)
	same(actual, expected)
}

// refused checks that a node refused a command, with the client's own error type.
func refused(err error, text string) {
	var typed redis.Error
	if !errors.As(err, &typed) || !strings.Contains(err.Error(), text) {
		panic(broken{fmt.Errorf("%v instead of %s", err, text)})
	}
}

var checks = []check{
	{"set-and-get", setAndGet},
	{"set-options", setOptions},
	{"exists-and-del", existsAndDel},
	{"numbers", numbers},
	{"expiry", expiry},
	{"hashes", hashes},
	{"several-keys", severalKeys},
	{"scan", scan},
	{"pipelines", pipelines},
	{"moved", moved},
	{"wrong-type", wrongType},
	{"syntax-errors", syntaxErrors},
	{"large-values", largeValues},
	{"empty-and-binary", emptyAndBinary},
	{"wrong-token", wrongToken},
	{"both-protocols", bothProtocols},
}

func setAndGet(ctx context.Context, client *redis.ClusterClient) {
	same(client.Get(ctx, "absent").Err(), error(redis.Nil))
	answers(client.Set(ctx, "a", "1", 0), "OK")
	answers(client.Set(ctx, "a", "2", 0), "OK")
	answers(client.Get(ctx, "a"), "2")
}

func setOptions(ctx context.Context, client *redis.ClusterClient) {
	set := func(value string, mode string) error {
		return client.SetArgs(ctx, "o", value, redis.SetArgs{Mode: mode}).Err()
	}
	same(set("1", "XX"), error(redis.Nil))
	must(set("1", "NX"))
	same(set("2", "NX"), error(redis.Nil))
	must(set("3", "XX"))
	answers(client.GetDel(ctx, "o"), "3")
	same(client.Get(ctx, "o").Err(), error(redis.Nil))
}

func existsAndDel(ctx context.Context, client *redis.ClusterClient) {
	must(client.Set(ctx, "e", "1", 0).Err())
	answers(client.Exists(ctx, "e"), 1)
	answers(client.Del(ctx, "e"), 1)
	answers(client.Exists(ctx, "e"), 0)
	answers(client.Del(ctx, "e"), 0)
}

func numbers(ctx context.Context, client *redis.ClusterClient) {
	answers(client.Incr(ctx, "n"), 1)
	answers(client.IncrBy(ctx, "n", 5), 6)
	answers(client.DecrBy(ctx, "n", 2), 4)
	answers(client.Append(ctx, "n", "2"), 2)
	answers(client.StrLen(ctx, "n"), 2)
	answers(client.Get(ctx, "n"), "42")
}

func expiry(ctx context.Context, client *redis.ClusterClient) {
	lives := func(from, to time.Duration) {
		left, err := client.TTL(ctx, "x").Result()
		must(err)
		same(from < left && left <= to, true)
	}
	must(client.Set(ctx, "x", "1", 100*time.Second).Err())
	lives(90*time.Second, 100*time.Second)
	answers(client.Persist(ctx, "x"), true)
	answers(client.TTL(ctx, "x"), -1)
	answers(client.Expire(ctx, "x", 200*time.Second), true)
	lives(190*time.Second, 200*time.Second)
	answers(client.PExpire(ctx, "x", 50*time.Millisecond), true)
	for until := time.Now().Add(10 * time.Second); client.Get(ctx, "x").Err() != redis.Nil; {
		same(time.Now().Before(until), true)
	}
	answers(client.TTL(ctx, "x"), -2)
}

func hashes(ctx context.Context, client *redis.ClusterClient) {
	answers(client.HSet(ctx, "h", "x", "1", "y", "2"), 2)
	answers(client.HSet(ctx, "h", "x", "3"), 0)
	answers(client.HGet(ctx, "h", "x"), "3")
	same(client.HGet(ctx, "h", "z").Err(), error(redis.Nil))
	answers(client.HGetAll(ctx, "h"), map[string]string{"x": "3", "y": "2"})
	answers(client.HMGet(ctx, "h", "y", "z"), []any{"2", nil})
	answers(client.HExists(ctx, "h", "y"), true)
	answers(client.HLen(ctx, "h"), 2)
	answers(client.HIncrBy(ctx, "h", "x", 4), 7)
	answers(client.HDel(ctx, "h", "x"), 1)
	answers(client.HKeys(ctx, "h"), []string{"y"})
	answers(client.Type(ctx, "h"), "hash")
}

func severalKeys(ctx context.Context, client *redis.ClusterClient) {
	answers(client.MSet(ctx, "{t}1", "1", "{t}2", "2"), "OK")
	answers(client.MGet(ctx, "{t}1", "{t}2", "{t}3"), []any{"1", "2", nil})
	answers(client.Exists(ctx, "{t}1", "{t}2", "{t}3"), 2)
	answers(client.Del(ctx, "{t}1", "{t}2"), 2)
}

func scan(ctx context.Context, client *redis.ClusterClient) {
	var expected, found []string
	for number := range 200 {
		key := fmt.Sprint("scan-", number)
		must(client.Set(ctx, key, number, 0).Err())
		expected = append(expected, key)
	}
	var one sync.Mutex
	must(client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		keys := node.Scan(ctx, 0, "scan-*", 0).Iterator()
		for keys.Next(ctx) {
			one.Lock()
			found = append(found, keys.Val())
			one.Unlock()
		}
		return keys.Err()
	}))
	sort.Strings(expected)
	sort.Strings(found)
	same(found, expected)
}

func pipelines(ctx context.Context, client *redis.ClusterClient) {
	write, read := client.Pipeline(), client.Pipeline()
	answers := []*redis.StringCmd{}
	for number := range 200 {
		write.Set(ctx, fmt.Sprint("pipe-", number), number, 0)
		answers = append(answers, read.Get(ctx, fmt.Sprint("pipe-", number)))
	}
	_, err := write.Exec(ctx)
	must(err)
	_, err = read.Exec(ctx)
	must(err)
	for number, answer := range answers {
		same(answer.Val(), fmt.Sprint(number))
	}
}

// A separate client believes that the next node leads every slot; it must follow the redirections that it gets.
func moved(ctx context.Context, client *redis.ClusterClient) {
	slots, err := client.ClusterSlots(ctx).Result()
	must(err)
	wrong := make([]redis.ClusterSlot, len(slots))
	for at, slot := range slots {
		slot.Nodes = []redis.ClusterNode{{Addr: nextTo(slot.Nodes[0].Addr)}}
		wrong[at] = slot
	}
	misled := connect(func(options *redis.ClusterOptions) {
		options.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) { return wrong, nil }
	})
	defer misled.Close()
	for number := range 20 {
		key := fmt.Sprint("moved-", number)
		answers(misled.Set(ctx, key, number, 0), "OK")
		answers(misled.Get(ctx, key), fmt.Sprint(number))
	}
	leader, err := client.MasterForKey(ctx, "moved-1")
	must(err)
	other := redis.NewClient(&redis.Options{Addr: nextTo(leader.Options().Addr), Password: token})
	defer other.Close()
	told, is := redis.IsMovedError(other.Get(ctx, "moved-1").Err())
	same(is, true)
	same(told, leader.Options().Addr)
}

func nextTo(address string) string {
	for at, node := range nodes {
		if node == address {
			return nodes[(at+1)%len(nodes)]
		}
	}
	return nodes[0]
}

func wrongType(ctx context.Context, client *redis.ClusterClient) {
	must(client.HSet(ctx, "w", "x", "1").Err())
	refused(client.Incr(ctx, "w").Err(), "WRONGTYPE")
	must(client.Set(ctx, "no-number", "x", 0).Err())
	refused(client.Incr(ctx, "no-number").Err(), "not an integer")
}

func syntaxErrors(ctx context.Context, client *redis.ClusterClient) {
	refused(client.Do(ctx, "set", "s", "1", "nosuch").Err(), "syntax error")
	refused(client.Do(ctx, "get", "s", "s2").Err(), "wrong number of arguments")
	refused(client.Do(ctx, "nosuch", "s").Err(), "unknown command")
}

func largeValues(ctx context.Context, client *redis.ClusterClient) {
	large := make([]byte, 4<<20)
	for at := range large {
		large[at] = byte(at)
	}
	answers(client.Set(ctx, "large", large, 0), "OK")
	found, err := client.Get(ctx, "large").Bytes()
	must(err)
	same(bytes.Equal(found, large), true)
}

func emptyAndBinary(ctx context.Context, client *redis.ClusterClient) {
	answers(client.Set(ctx, "empty", "", 0), "OK")
	answers(client.Get(ctx, "empty"), "")
	answers(client.Exists(ctx, "empty"), 1)
	answers(client.Set(ctx, "\x00\xff\r\n", "\r\n\x00\xff$-1\r\n", 0), "OK")
	answers(client.Get(ctx, "\x00\xff\r\n"), "\r\n\x00\xff$-1\r\n")
}

func wrongToken(ctx context.Context, _ *redis.ClusterClient) {
	other := redis.NewClient(&redis.Options{Addr: nodes[0], Password: "not the token"})
	defer other.Close()
	err := other.Ping(ctx).Err()
	if !redis.IsAuthError(err) {
		panic(broken{fmt.Errorf("%v instead of a refused password", err)})
	}
}

func bothProtocols(ctx context.Context, client *redis.ClusterClient) {
	must(client.HSet(ctx, "both", "x", "1").Err())
	for _, protocol := range []int{2, 3} {
		other := connect(func(options *redis.ClusterOptions) { options.Protocol = protocol })
		answers(other.HGetAll(ctx, "both"), map[string]string{"x": "1"})
		same(other.Get(ctx, "absent").Err(), error(redis.Nil))
		must(other.Close())
	}
}
