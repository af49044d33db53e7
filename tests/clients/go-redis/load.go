// Writers, each with keys of its own whose versions only rise, until standard input ends.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	writers     = 4
	keys        = 64
	underWay    = 50
	retryAfter  = 20 * time.Millisecond
	retriesLast = 30 * time.Second
)

type load struct {
	client *redis.ClusterClient
	isOver atomic.Bool
	began  sync.WaitGroup
	one    sync.Mutex
	met    map[string]int
}

// seen is what one writer observed.
type seen struct {
	acknowledged [keys]int
	writes       int
	stale        int
	gap          time.Duration
}

func (load *load) again(call func() error) error {
	for until := time.Now().Add(retriesLast); ; time.Sleep(retryAfter) {
		err := call()
		if err == nil {
			return nil
		}
		load.one.Lock()
		load.met[fmt.Sprintf("%.80s", err.Error())]++
		load.one.Unlock()
		if time.Now().After(until) {
			return err
		}
	}
}

// value is the version at a key; 0 if there is none.
func (load *load) value(key string) (int, error) {
	text := "0"
	err := load.again(func() error {
		found, err := load.client.Get(context.Background(), key).Result()
		if errors.Is(err, redis.Nil) {
			return nil
		}
		text = found
		return err
	})
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

func (load *load) write(writer int, seen *seen) error {
	last := time.Now()
	for !load.isOver.Load() {
		number := seen.writes + 1
		key := fmt.Sprintf("load-%d-%d", writer, number%keys)
		found, err := load.value(key)
		if err != nil {
			return err
		}
		if found != seen.acknowledged[number%keys] {
			seen.stale++
		}
		err = load.again(func() error { return load.client.Set(context.Background(), key, number, 0).Err() })
		if err != nil {
			return err
		}
		seen.acknowledged[number%keys], seen.writes = number, number
		now := time.Now()
		seen.gap, last = max(seen.gap, now.Sub(last)), now
		if number == underWay {
			load.began.Done()
		}
	}
	return nil
}

func (load *load) lost(writer int, seen *seen) (int, error) {
	count := 0
	for at, version := range seen.acknowledged {
		if version == 0 {
			continue
		}
		found, err := load.value(fmt.Sprintf("load-%d-%d", writer, at))
		if err != nil {
			return 0, err
		}
		if found != version {
			count++
		}
	}
	return count, nil
}

func run(client *redis.ClusterClient) (map[string]any, error) {
	load := &load{client: client, met: map[string]int{}}
	all := make([]seen, writers)
	var ended sync.WaitGroup
	load.began.Add(writers)
	for writer := range all {
		ended.Go(func() {
			if err := load.write(writer, &all[writer]); err != nil {
				fmt.Fprintf(os.Stderr, "writer %d: %v\n", writer, err)
				os.Exit(1)
			}
		})
	}
	load.began.Wait()
	tell(map[string]any{"under_way": true})
	again := begin()
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return nil, err
	}
	load.isOver.Store(true)
	ended.Wait()
	again.end()
	for err, times := range again.met {
		load.met[err] += times
	}
	acknowledged, lost, stale, gap := 0, 0, 0, time.Duration(0)
	for writer := range all {
		missing, err := load.lost(writer, &all[writer])
		if err != nil {
			return nil, err
		}
		acknowledged, lost = acknowledged+all[writer].writes, lost+missing
		stale, gap = stale+all[writer].stale, max(gap, all[writer].gap)
	}
	return map[string]any{
		"acknowledged": acknowledged, "lost": lost, "stale": stale,
		"longest_gap_ms": gap.Milliseconds(), "met": load.met,
		"checks_under_way": again.rounds, "checks_at_end": again.atEnd, "sent_twice": again.sentTwice,
	}, nil
}
