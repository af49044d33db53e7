// go-redis at a ring: the checks that every client makes, then writes and the checks again while nodes change.
//
// Called with the nodes, HOST:PORT,HOST:PORT,...; the token is in REDISCLI_AUTH. tests/clients/README.md has the protocol.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

var (
	nodes = strings.Split(os.Args[1], ",")
	token = os.Getenv("REDISCLI_AUTH")
)

func connect(change func(*redis.ClusterOptions)) *redis.ClusterClient {
	// By default this client asks for the leaders of slots once a minute, and no sooner after a failed connection.
	options := &redis.ClusterOptions{Addrs: nodes, Password: token, ClusterStateReloadInterval: time.Second}
	if change != nil {
		change(options)
	}
	return redis.NewClusterClient(options)
}

func tell(event map[string]any) {
	line, err := json.Marshal(event)
	must(err)
	fmt.Println(string(line))
}

func main() {
	client := connect(nil)
	names := []string{}
	for _, check := range checks {
		if err := made(check, client, turn{}); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", check.name, err)
			os.Exit(1)
		}
		names = append(names, check.name)
	}
	told, err := run(client)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	told["client"], told["version"], told["checks"] = "go-redis", redis.Version(), names
	tell(told)
}
