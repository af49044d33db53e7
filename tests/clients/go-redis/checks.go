// The checks: what a client can rely on, whether nodes stay the same or not.

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"
)

type check struct {
	name string
	run  func(context.Context, *redis.ClusterClient, turn)
}

// broken is the panic value of a check that fails.
type broken struct{ error }

// made runs a check, and returns why it fails, or nil.
func made(check check, client *redis.ClusterClient, turn turn) (err error) {
	defer func() {
		switch caught := recover().(type) {
		case nil:
		case broken:
			err = caught.error
		case sentTwice:
			err = caught
		default:
			panic(caught)
		}
	}()
	check.run(context.Background(), client, turn)
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
		panic(broken{instead(err, text)})
	}
}

// instead is the error itself if the check has to begin again because of it.
func instead(err error, of string) error {
	if isLater(err) {
		return err
	}
	return fmt.Errorf("%v instead of %s", err, of)
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

func setAndGet(ctx context.Context, client *redis.ClusterClient, turn turn) {
	key := turn.key("a")
	absent(client.Get(ctx, turn.key("absent")).Err())
	answers(client.Set(ctx, key, "1", 0), "OK")
	answers(client.Set(ctx, key, "2", 0), "OK")
	answers(client.Get(ctx, key), "2")
}

func setOptions(ctx context.Context, client *redis.ClusterClient, turn turn) {
	key := turn.key("o")
	set := func(value string, mode string) error {
		return client.SetArgs(ctx, key, value, redis.SetArgs{Mode: mode}).Err()
	}
	absent(set("1", "XX"))
	present(turn, set("1", "NX"))
	absent(set("2", "NX"))
	must(set("3", "XX"))
	taken := client.GetDel(ctx, key)
	present(turn, taken.Err())
	same(taken.Val(), "3")
	absent(client.Get(ctx, key).Err())
}

// present checks that there is an answer, to a command that gets none when it is carried out twice.
func present(turn turn, err error) {
	if turn.maySendTwice && errors.Is(err, redis.Nil) {
		panic(sentTwice{err})
	}
	must(err)
}

func existsAndDel(ctx context.Context, client *redis.ClusterClient, turn turn) {
	key := turn.key("e")
	must(client.Set(ctx, key, "1", 0).Err())
	answers(client.Exists(ctx, key), 1)
	once(turn, client.Del(ctx, key), 1, 0)
	answers(client.Exists(ctx, key), 0)
	answers(client.Del(ctx, key), 0)
}

func numbers(ctx context.Context, client *redis.ClusterClient, turn turn) {
	key := turn.key("n")
	once(turn, client.Incr(ctx, key), 1, 2)
	once(turn, client.IncrBy(ctx, key, 5), 6, 11)
	once(turn, client.DecrBy(ctx, key, 2), 4, 2)
	once(turn, client.Append(ctx, key, "2"), 2, 3)
	answers(client.StrLen(ctx, key), 2)
	answers(client.Get(ctx, key), "42")
}

func expiry(ctx context.Context, client *redis.ClusterClient, turn turn) {
	key := turn.key("x")
	// A command may have waited for another node.
	lives := func(whole time.Duration, began time.Time) {
		left, err := client.TTL(ctx, key).Result()
		must(err)
		same(whole-10*time.Second-time.Since(began) < left && left <= whole, true)
	}
	began := time.Now()
	must(client.Set(ctx, key, "1", 100*time.Second).Err())
	lives(100*time.Second, began)
	once(turn, client.Persist(ctx, key), true, false)
	answers(client.TTL(ctx, key), -1)
	began = time.Now()
	answers(client.Expire(ctx, key, 200*time.Second), true)
	lives(200*time.Second, began)
	once(turn, client.PExpire(ctx, key, 50*time.Millisecond), true, false)
	until := time.Now().Add(10 * time.Second)
	err := client.Get(ctx, key).Err()
	for err == nil {
		same(time.Now().Before(until), true)
		err = client.Get(ctx, key).Err()
	}
	absent(err)
	answers(client.TTL(ctx, key), -2)
}

func hashes(ctx context.Context, client *redis.ClusterClient, turn turn) {
	key := turn.key("h")
	once(turn, client.HSet(ctx, key, "x", "1", "y", "2"), 2, 0)
	answers(client.HSet(ctx, key, "x", "3"), 0)
	answers(client.HGet(ctx, key, "x"), "3")
	absent(client.HGet(ctx, key, "z").Err())
	answers(client.HGetAll(ctx, key), map[string]string{"x": "3", "y": "2"})
	answers(client.HMGet(ctx, key, "y", "z"), []any{"2", nil})
	answers(client.HExists(ctx, key, "y"), true)
	answers(client.HLen(ctx, key), 2)
	once(turn, client.HIncrBy(ctx, key, "x", 4), 7, 11)
	once(turn, client.HDel(ctx, key, "x"), 1, 0)
	answers(client.HKeys(ctx, key), []string{"y"})
	answers(client.Type(ctx, key), "hash")
}

func severalKeys(ctx context.Context, client *redis.ClusterClient, turn turn) {
	first, second, third := turn.tagged("t", 1), turn.tagged("t", 2), turn.tagged("t", 3)
	answers(client.MSet(ctx, first, "1", second, "2"), "OK")
	answers(client.MGet(ctx, first, second, third), []any{"1", "2", nil})
	answers(client.Exists(ctx, first, second, third), 2)
	once(turn, client.Del(ctx, first, second), 2, 0)
}

func scan(ctx context.Context, client *redis.ClusterClient, turn turn) {
	var expected, found []string
	for number := range 200 {
		key := turn.key(fmt.Sprint("scan-", number))
		must(client.Set(ctx, key, number, 0).Err())
		expected = append(expected, key)
	}
	var one sync.Mutex
	must(client.ForEachMaster(ctx, func(ctx context.Context, node *redis.Client) error {
		keys := node.Scan(ctx, 0, turn.key("scan-*"), 0).Iterator()
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

func pipelines(ctx context.Context, client *redis.ClusterClient, turn turn) {
	write, read := client.Pipeline(), client.Pipeline()
	answers := []*redis.StringCmd{}
	for number := range 200 {
		key := turn.key(fmt.Sprint("pipe-", number))
		write.Set(ctx, key, number, 0)
		answers = append(answers, read.Get(ctx, key))
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
func moved(ctx context.Context, client *redis.ClusterClient, turn turn) {
	slots, err := client.ClusterSlots(ctx).Result()
	must(err)
	lead := []string{}
	for _, slot := range slots {
		lead = append(lead, slot.Nodes[0].Addr)
	}
	sort.Strings(lead)
	lead = slices.Compact(lead)
	wrong := make([]redis.ClusterSlot, len(slots))
	for at, slot := range slots {
		slot.Nodes = []redis.ClusterNode{{Addr: nextTo(slot.Nodes[0].Addr, lead)}}
		wrong[at] = slot
	}
	misled := connect(func(options *redis.ClusterOptions) {
		options.ClusterSlots = func(context.Context) ([]redis.ClusterSlot, error) { return wrong, nil }
	})
	defer misled.Close()
	for number := range 20 {
		key := turn.key(fmt.Sprint("moved-", number))
		answers(misled.Set(ctx, key, number, 0), "OK")
		answers(misled.Get(ctx, key), fmt.Sprint(number))
	}
	key := turn.key("moved-1")
	leader, err := client.MasterForKey(ctx, key)
	must(err)
	other := redis.NewClient(&redis.Options{Addr: nextTo(leader.Options().Addr, lead), Password: token})
	defer other.Close()
	err = other.Get(ctx, key).Err()
	told, is := redis.IsMovedError(err)
	if !is {
		panic(broken{instead(err, "MOVED")})
	}
	same(told, leader.Options().Addr)
}

// nextTo is another node that leads slots.
func nextTo(address string, lead []string) string {
	for at, node := range lead {
		if node == address {
			return lead[(at+1)%len(lead)]
		}
	}
	return lead[0]
}

func wrongType(ctx context.Context, client *redis.ClusterClient, turn turn) {
	must(client.HSet(ctx, turn.key("w"), "x", "1").Err())
	refused(client.Incr(ctx, turn.key("w")).Err(), "WRONGTYPE")
	must(client.Set(ctx, turn.key("no-number"), "x", 0).Err())
	refused(client.Incr(ctx, turn.key("no-number")).Err(), "not an integer")
}

func syntaxErrors(ctx context.Context, client *redis.ClusterClient, turn turn) {
	key := turn.key("s")
	refused(client.Do(ctx, "set", key, "1", "nosuch").Err(), "syntax error")
	refused(client.Do(ctx, "get", key, "s2").Err(), "wrong number of arguments")
	refused(client.Do(ctx, "nosuch", key).Err(), "unknown command")
}

func largeValues(ctx context.Context, client *redis.ClusterClient, turn turn) {
	key := turn.key("large")
	large := make([]byte, 4<<20)
	for at := range large {
		large[at] = byte(at)
	}
	answers(client.Set(ctx, key, large, 0), "OK")
	found, err := client.Get(ctx, key).Bytes()
	must(err)
	same(bytes.Equal(found, large), true)
	once(turn, client.Del(ctx, key), 1, 0)
}

func emptyAndBinary(ctx context.Context, client *redis.ClusterClient, turn turn) {
	empty, binary := turn.key("empty"), turn.key("\x00\xff\r\n")
	answers(client.Set(ctx, empty, "", 0), "OK")
	answers(client.Get(ctx, empty), "")
	answers(client.Exists(ctx, empty), 1)
	answers(client.Set(ctx, binary, "\r\n\x00\xff$-1\r\n", 0), "OK")
	answers(client.Get(ctx, binary), "\r\n\x00\xff$-1\r\n")
}

func wrongToken(ctx context.Context, _ *redis.ClusterClient, turn turn) {
	other := redis.NewClient(&redis.Options{Addr: nodes[turn.number%len(nodes)], Password: "not the token"})
	defer other.Close()
	err := other.Ping(ctx).Err()
	if !redis.IsAuthError(err) {
		panic(broken{instead(err, "a refused password")})
	}
}

func bothProtocols(ctx context.Context, client *redis.ClusterClient, turn turn) {
	key := turn.key("both")
	must(client.HSet(ctx, key, "x", "1").Err())
	for _, protocol := range []int{2, 3} {
		other := connect(func(options *redis.ClusterOptions) { options.Protocol = protocol })
		defer other.Close()
		answers(other.HGetAll(ctx, key), map[string]string{"x": "1"})
		absent(other.Get(ctx, turn.key("absent")).Err())
	}
}
