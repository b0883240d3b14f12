// Asks Porcupine, a checker of linearizability, about the file of operations that `localstack/acceptance/run histories` writes.
//
//	go run . FILE    0 if every history is accepted, 1 if one is not or there is none, 2 if the file cannot be read
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"time"

	"github.com/anishathalye/porcupine"
)

// A line of the file: a `like`, an `unlike`, a `view`, or a `read` of one counter of a post. Times are of one clock, `as_of` in
// milliseconds and the others in nanoseconds. A write whose outcome is not known has no `return`.
type line struct {
	Kind, Post, User, Counter string
	Value                     int
	Mine, Exact               bool
	AsOf                      int64 `json:"as_of"`
	Call, Return              int64
}

// What is done to a number: `set` to n, `add` n, or `read` n.
type input struct {
	do string
	n  int
}

var model = porcupine.Model{
	Init: func() any { return 0 },
	Step: func(state, asked, _ any) (bool, any) {
		switch it := asked.(input); it.do {
		case "set":
			return true, it.n
		case "add":
			return true, state.(int) + it.n
		default:
			return state.(int) == it.n, state
		}
	},
}

// A write is between its request and its acknowledgement, or at any later time if there was none. A read has everything that was
// acknowledged by its `as_of`, and may have later writes, so it is somewhere between `as_of` and its answer. `as_of` is rounded
// down, and a client sees an acknowledgement later than Kafka gives it: both make the interval longer, never too short.
func (it line) operation(do string, n int) porcupine.Operation {
	op := porcupine.Operation{Input: input{do, n}, Call: it.Call, Return: it.Return}
	if do == "read" {
		op.Call = it.AsOf * int64(time.Millisecond)
	} else if it.Return == 0 {
		op.Return = math.MaxInt64
	}
	return op
}

// Histories by key. Each (post, user) is a register, which is 1 while the user likes the post. The views of a post are a counter.
//
// The shards of a post advance independently, so a count of likes may be a number that the rows never had together. It is judged
// where that makes no difference: where users only join, the count is a counter, since the rows have had every number between
// those at `as_of` and at the answer; and where there is one user, it reads that user's register.
func histories(lines []line) map[string][]porcupine.Operation {
	likes, left := map[string]map[string]int{}, map[string]bool{}
	for _, it := range lines {
		if it.Kind == "like" || it.Kind == "unlike" {
			if likes[it.Post] == nil {
				likes[it.Post] = map[string]int{}
			}
			likes[it.Post][it.User]++
			left[it.Post] = left[it.Post] || it.Kind == "unlike" || likes[it.Post][it.User] > 1
		}
	}
	found := map[string][]porcupine.Operation{}
	for _, it := range lines {
		note := func(key, do string, n int) { found[key] = append(found[key], it.operation(do, n)) }
		member, count, views := it.Post+" mine "+it.User, it.Post+" likes", it.Post+" views"
		one := map[bool]int{true: 1}
		switch {
		case it.Kind == "view":
			note(views, "add", 1)
		case it.Kind != "read":
			note(member, "set", one[it.Kind == "like"])
			note(count, "add", 1)
		case !it.Exact: // It promises nothing.
		case it.Counter == "views":
			note(views, "read", it.Value)
		default:
			note(member, "read", one[it.Mine])
			note(count, "read", it.Value)
			for user := range likes[it.Post] {
				if len(likes[it.Post]) == 1 {
					note(it.Post+" mine "+user, "read", it.Value)
				}
			}
		}
	}
	for post := range left {
		if left[post] {
			delete(found, post+" likes")
		}
	}
	return found
}

// The result of a history that takes longer is `Unknown`.
func check(history []porcupine.Operation) porcupine.CheckResult {
	return porcupine.CheckOperationsTimeout(model, history, 10*time.Second)
}

// The writes of a rejected history, and no more reads than it needs to be rejected.
func reduced(history []porcupine.Operation) []porcupine.Operation {
	for at := len(history) - 1; at >= 0; at-- {
		without := slices.Delete(slices.Clone(history), at, at+1)
		if history[at].Input.(input).do == "read" && check(without) == porcupine.Illegal {
			history = without
		}
	}
	return history
}

func main() {
	file, err := os.Open(os.Args[len(os.Args)-1])
	var lines []line
	for decoder := json.NewDecoder(file); err == nil && decoder.More(); {
		var it line
		err = decoder.Decode(&it)
		lines = append(lines, it)
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	of := map[string]int{}
	for _, it := range lines {
		of[it.Kind]++
		if it.Kind == "read" && it.Exact {
			of["exact"]++
		} else if it.Return == 0 {
			of["unknown"]++
		}
	}
	writes := of["like"] + of["unlike"] + of["view"]
	fmt.Printf("%d writes (%d of unknown outcome), %d reads, %d of them exact\n", writes, of["unknown"], of["read"], of["exact"])
	found, rejected := histories(lines), 0
	for _, key := range slices.Sorted(maps.Keys(found)) {
		result := check(found[key])
		if result == porcupine.Ok {
			continue
		}
		fmt.Printf("%s: %s\n", key, result)
		if rejected++; rejected == 1 && result == porcupine.Illegal {
			for _, op := range reduced(found[key]) {
				fmt.Printf("  from %d to %d: %v\n", op.Call, op.Return, op.Input)
			}
		}
	}
	fmt.Printf("%d histories, %d rejected\n", len(found), rejected)
	if rejected > 0 || of["exact"] == 0 {
		os.Exit(1)
	}
}
