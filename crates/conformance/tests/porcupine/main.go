// Porcupine's verdict on histories of one partition, for comparison with the suite's own checker.
//
// Reads a JSON array of histories from standard input and writes a JSON array of booleans: whether each
// is linearizable.
package main

import (
	"encoding/json"
	"fmt"
	"os"
	"sort"
	"strings"

	"github.com/anishathalye/porcupine"
)

// operation is one call as a client saw it. Absent values are null.
type operation struct {
	Client   int               `json:"client"`
	Called   int64             `json:"called"`
	Returned int64             `json:"returned"`
	Action   string            `json:"action"`
	Keys     []string          `json:"keys"`
	Value    string            `json:"value"`
	Expected *string           `json:"expected"`
	Answer   string            `json:"answer"`
	Found    *string           `json:"found"`
	Cells    map[string]string `json:"cells"`
}

// cells is a state: every cell as key=value, sorted, so that equal states are equal strings.
func encode(cells map[string]string) string {
	pairs := make([]string, 0, len(cells))
	for key, value := range cells {
		pairs = append(pairs, key+"="+value)
	}
	sort.Strings(pairs)
	return strings.Join(pairs, ";")
}

func decode(state string) map[string]string {
	cells := map[string]string{}
	if state == "" {
		return cells
	}
	for _, pair := range strings.Split(state, ";") {
		key, value, _ := strings.Cut(pair, "=")
		cells[key] = value
	}
	return cells
}

func holds(cells map[string]string, key string, told *string) bool {
	value, present := cells[key]
	if told == nil {
		return !present
	}
	return present && value == *told
}

// write applies the operation and tells whether its condition held.
func write(cells map[string]string, call operation) bool {
	switch call.Action {
	case "put":
		for _, key := range call.Keys {
			cells[key] = call.Value
		}
	case "append":
		cells[call.Keys[0]] += call.Value
	case "delete":
		delete(cells, call.Keys[0])
	case "swap":
		if !holds(cells, call.Keys[0], call.Expected) {
			return false
		}
		cells[call.Keys[0]] = call.Value
	}
	return true
}

func step(state, input, _ interface{}) (bool, interface{}) {
	before, call := state.(string), input.(operation)
	cells := decode(before)
	switch call.Answer {
	case "value":
		return holds(cells, call.Keys[0], call.Found), before
	case "cells":
		return before == encode(call.Cells), before
	case "conflict":
		key := call.Keys[0]
		return !holds(cells, key, call.Expected) && holds(cells, key, call.Found), before
	case "done":
		return write(cells, call), encode(cells)
	default: // unknown: it happened if it could
		write(cells, call)
		return true, encode(cells)
	}
}

func isLinearizable(history []operation) bool {
	last := int64(0)
	for _, call := range history {
		last = max(last, call.Called, call.Returned)
	}
	operations := make([]porcupine.Operation, len(history))
	for at, call := range history {
		returned := call.Returned
		if call.Answer == "unknown" {
			// Nobody saw it return, so it may still be under way after everything else.
			returned = last + 1 + int64(at)
		}
		operations[at] = porcupine.Operation{
			ClientId: call.Client, Input: call, Call: call.Called, Output: nil, Return: returned,
		}
	}
	model := porcupine.Model{Init: func() interface{} { return "" }, Step: step}
	return porcupine.CheckOperations(model, operations)
}

func main() {
	var histories [][]operation
	if err := json.NewDecoder(os.Stdin).Decode(&histories); err != nil {
		fmt.Fprintln(os.Stderr, "cannot read the histories:", err)
		os.Exit(1)
	}
	verdicts := make([]bool, len(histories))
	for at, history := range histories {
		verdicts[at] = isLinearizable(history)
	}
	if err := json.NewEncoder(os.Stdout).Encode(verdicts); err != nil {
		fmt.Fprintln(os.Stderr, "cannot write the verdicts:", err)
		os.Exit(1)
	}
}
