// The checks again and again while nodes come and go, and once more when they have.

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"
)

const (
	attemptsLast = 30 * time.Second
	// Between rounds, so that the writers keep most of the machine.
	pause = 300 * time.Millisecond
	// By then every node has heard who leads a slot now.
	heardLast = 3 * time.Second
)

// By these words a node says that a command may succeed later, or that it does not know its fate.
var later = regexp.MustCompile(`\b(MOVED|ASK|CLUSTERDOWN|LOADING|TRYAGAIN|NOREPLICAS|UNKNOWN)\b`)

// These checks also depend on which node leads what, and slots may move while they are made.
var ofLeaders = []string{"scan", "moved"}

// turn is one attempt at a check. Number 0 is the one before nodes change, which has the plain keys; every other one
// has keys of its own, so that what an interrupted attempt left behind does not confuse the next one.
type turn struct {
	number int
	// Whether a connection may end now. The client then sends a command again by itself, and cannot know whether it
	// was carried out before.
	maySendTwice bool
}

func (turn turn) key(name string) string {
	if turn.number == 0 {
		return name
	}
	return fmt.Sprintf("again-%d-%s", turn.number, name)
}

// tagged is one of the keys of a tag, which share a slot.
func (turn turn) tagged(tag string, name any) string {
	return fmt.Sprintf("{%s}%v", turn.key(tag), name)
}

// sentTwice is the panic value for the answer to a command which the client sent again after it had been carried out.
type sentTwice struct{ error }

// once checks the answer to a command that answers differently, in this known way, when it is carried out twice.
func once[T any](turn turn, command interface{ Result() (T, error) }, expected T, twice T) {
	actual, err := command.Result()
	must(err)
	if turn.maySendTwice && !reflect.DeepEqual(actual, expected) && reflect.DeepEqual(actual, twice) {
		panic(sentTwice{fmt.Errorf("%v instead of %v", actual, expected)})
	}
	same(actual, expected)
}

// absent checks that there is no answer.
func absent(err error) {
	if err != nil && !errors.Is(err, redis.Nil) {
		panic(broken{err})
	}
	same(errors.Is(err, redis.Nil), true)
}

// isLater is whether what failed may succeed later: its node is gone or about to be, or its slot moves.
func isLater(err error) bool {
	var network net.Error
	var typed redis.Error
	switch {
	case err == nil, redis.IsAuthError(err):
		return false
	case errors.As(err, &network), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return true
	case errors.Is(err, redis.ErrClosed), errors.Is(err, redis.ErrPoolTimeout), errors.Is(err, net.ErrClosed):
		return true
	case errors.Is(err, context.DeadlineExceeded), strings.Contains(err.Error(), "cluster has no nodes"):
		return true
	case errors.As(err, &typed):
		return later.MatchString(err.Error())
	}
	return false
}

// repeated makes the checks, round after round, with connections of its own.
type repeated struct {
	client    *redis.ClusterClient
	isOver    atomic.Bool
	attempts  int
	rounds    int
	sentTwice int
	atEnd     []string
	met       map[string]int
	ended     chan struct{}
}

func begin() *repeated {
	again := &repeated{client: connect(nil), met: map[string]int{}, ended: make(chan struct{})}
	go func() {
		defer close(again.ended)
		for isLast := false; !isLast; {
			isLast = again.isOver.Load()
			again.round(isLast)
			if !isLast {
				time.Sleep(pause)
			}
		}
	}()
	return again
}

// end waits for one more whole round.
func (again *repeated) end() {
	again.isOver.Store(true)
	<-again.ended
}

func (again *repeated) round(isLast bool) {
	names := []string{}
	for _, check := range checks {
		if err := again.make(check, isLast); err != nil {
			fmt.Fprintf(os.Stderr, "while nodes changed: %s: %v\n", check.name, err)
			os.Exit(1)
		}
		names = append(names, check.name)
	}
	again.atEnd = names
	again.rounds++
}

func (again *repeated) make(check check, isLast bool) error {
	for until := time.Now().Add(attemptsLast); ; time.Sleep(retryAfter) {
		again.attempts++
		why, err := again.attempt(check, turn{again.attempts, !isLast})
		if err != nil || why == nil {
			return err
		}
		again.met[fmt.Sprintf("%.80s", check.name+": "+why.Error())]++
		if time.Now().After(until) {
			return fmt.Errorf("not made in %v: %w", attemptsLast, why)
		}
	}
}

// attempt returns why the check has to begin again, or the error if it does not hold, or neither.
func (again *repeated) attempt(check check, turn turn) (why error, err error) {
	isOfLeaders := slices.Contains(ofLeaders, check.name)
	before := ""
	if isOfLeaders {
		if before, err = leaders(again.client); err != nil {
			return err, nil
		}
	}
	err = made(check, again.client, turn)
	var twice sentTwice
	switch {
	case err == nil:
		return nil, nil
	case errors.As(err, &twice):
		again.sentTwice++
		return err, nil
	case isLater(err), isOfLeaders && again.haveChanged(before):
		return err, nil
	}
	return nil, err
}

// haveChanged is whether slots have other leaders than before, or get them shortly: a node may not have heard yet.
func (again *repeated) haveChanged(before string) bool {
	for until := time.Now().Add(heardLast); time.Now().Before(until); time.Sleep(retryAfter) {
		if now, err := leaders(again.client); err == nil && now != before {
			return true
		}
	}
	return false
}

// leaders is who leads which slots, as a node says.
func leaders(client *redis.ClusterClient) (string, error) {
	slots, err := client.ClusterSlots(context.Background()).Result()
	if err != nil {
		return "", err
	}
	told := []string{}
	for _, slot := range slots {
		for _, node := range slot.Nodes {
			told = append(told, fmt.Sprintf("%d-%d %s", slot.Start, slot.End, node.Addr))
		}
	}
	slices.Sort(told)
	return fmt.Sprint(told), nil
}
