// Asks Porcupine, a checker of linearizability, about the file of operations that `localstack/acceptance/run histories` writes.
//
//	go run . FILE    0 if every history is accepted, 1 if one is not or nothing was read, 2 if the file cannot be read
package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
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
	found := map[string][]porcupine.Operation{}
	for _, it := range lines {
		note := func(key, do string, n int) { found[key] = append(found[key], it.operation(do, n)) }
		likes, views, mine := it.Post+" likes", it.Post+" views", it.Post+" mine "
		onlyJoined, one := strings.HasPrefix(it.Post, "grown-"), map[bool]int{true: 1}
		switch {
		case it.Kind == "view":
			note(views, "add", 1)
		case it.Kind != "read":
			note(mine+it.User, "set", one[it.Kind == "like"])
			if onlyJoined {
				note(likes, "add", 1)
			}
		case !it.Exact: // It promises nothing.
		case it.Counter == "views":
			note(views, "read", it.Value)
		default:
			note(mine+it.User, "read", one[it.Mine])
			if onlyJoined {
				note(likes, "read", it.Value)
			} else if strings.HasPrefix(it.Post, "solo-") {
				note(mine+"solo", "read", it.Value)
			}
		}
	}
	return found
}

// A history that takes longer is `Unknown`, which is not accepted either.
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
	exact, open, rejected, undecided := 0, 0, 0, 0
	for decoder := json.NewDecoder(file); err == nil && decoder.More(); {
		var it line
		err = decoder.Decode(&it)
		lines = append(lines, it)
		if it.Exact {
			exact++
		} else if it.Return == 0 {
			open++
		}
	}
	if err != nil {
		fmt.Println(err)
		os.Exit(2)
	}
	found := histories(lines)
	for _, key := range slices.Sorted(maps.Keys(found)) {
		if result := check(found[key]); result != porcupine.Ok {
			fmt.Printf("%s: %s\n", key, result)
			if result != porcupine.Illegal {
				undecided++
			} else if rejected++; rejected == 1 {
				for _, op := range reduced(found[key]) {
					fmt.Printf("  from %d to %d: %v\n", op.Call, op.Return, op.Input)
				}
			}
		}
	}
	fmt.Printf("%d operations: %d exact reads, %d writes of unknown outcome\n", len(lines), exact, open)
	fmt.Printf("%d histories, %d rejected\n", len(found), rejected)
	if undecided > 0 || exact == 0 {
		fmt.Println("nothing is proved: a history was not decided in time, or no read was exact")
		os.Exit(3)
	}
	if rejected > 0 {
		os.Exit(1)
	}
}
