// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/roquetmq/roquet/internal/config"
	"github.com/roquetmq/roquet/internal/service"
)

// TestMain makes this binary the command too, which scripts run in processes of their own.
func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){"roquet": main})
}

// TestScripts runs testdata/script/*.txtar, each with a server of its own (server.yaml has its settings): every command, as a table and as JSON.
// Besides those of testscript there are
//
//	json PATH WANT             the value at a.b.0.c of what the last command wrote as JSON matches WANT
//	json NAME=PATH             it is kept in a variable
//	lines N                    how many lines the last command wrote
//	eventually PATH WANT CMD   CMD again and again until json PATH WANT holds
//	stop                       ends the server
func TestScripts(t *testing.T) {
	t.Parallel()
	testscript.Run(t, testscript.Params{
		Dir: "testdata/script", Setup: setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"json": checkJSON, "lines": checkLines, "eventually": eventually,
			"stop": func(ts *testscript.TestScript, _ bool, _ []string) {
				stop, _ := ts.Value(serverKey{}).(func() error)
				ts.Check(stop())
			},
		},
	})
}

type serverKey struct{}

// setup starts a server on ports that are free, all of its listeners.
func setup(env *testscript.Env) error {
	loaded, err := config.Load(optional(env.WorkDir+"/server.yaml"), nil, nil)
	if err != nil {
		return err
	}
	cfg := loaded.Config
	cfg.Store.Dir, cfg.Identity.BrokerName = env.WorkDir+"/data", "broker-a"
	l := &cfg.Listen
	l.PortOffset = 1
	for _, port := range []*int{&l.NamesrvPort, &l.BrokerPort, &l.FastPort, &l.GRPCPort, &l.HTTPPort} {
		*port = freePort() - l.PortOffset
	}
	svc, err := service.New(cfg, "test", slog.New(slog.NewTextHandler(io.Discard, nil)), new(slog.LevelVar))
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- svc.Run(ctx) }()
	select {
	case <-svc.Listening():
	case err = <-ended: // somebody took a port meanwhile
		ended <- err // for stop, which would wait for it for ever
	}
	stop := sync.OnceValue(func() error { cancel(); return <-ended })
	env.Defer(func() {
		if err := stop(); err != nil {
			env.T().Log(err)
			env.T().FailNow()
		}
	})
	env.Values[serverKey{}] = stop
	env.Setenv("ROQUET_SERVER", "http://127.0.0.1:"+strconv.Itoa(l.Port(l.HTTPPort)))
	env.Setenv("BROKER", "127.0.0.1:"+strconv.Itoa(l.Port(l.BrokerPort)))
	env.Setenv("NAMESRV", "127.0.0.1:"+strconv.Itoa(l.Port(l.NamesrvPort)))
	env.Setenv("HTTP_PORT", strconv.Itoa(l.HTTPPort))
	env.Setenv("BROKER_PORT", strconv.Itoa(l.Port(l.BrokerPort)))
	env.Setenv("TZ", "UTC")
	return err
}

// optional is a file's name if the script has the file.
func optional(name string) string {
	if _, err := os.Stat(name); err != nil {
		return ""
	}
	return name
}

// lastPort counts the ports that were given out.
var lastPort atomic.Int32

// freePort is a port for a server, below those that connections get, which could take it before it is bound; 0 if there is none.
func freePort() int {
	for range 1000 {
		port := 10_000 + (64*os.Getpid()+int(lastPort.Add(1)))%22_000
		if l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(port))); err == nil {
			l.Close()
			return port
		}
	}
	return 0
}

// at is the value at a path; several values in a row are a list.
func at(text, path string) (string, error) {
	var all []any
	decoder := json.NewDecoder(strings.NewReader(text))
	for {
		var v any
		if err := decoder.Decode(&v); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return "", fmt.Errorf("%w: %q", err, text)
		}
		all = append(all, v)
	}
	v := any(all)
	if len(all) == 1 {
		v = all[0]
	}
	for word := range strings.SplitSeq(path, ".") {
		switch in := v.(type) {
		case map[string]any:
			v = in[word]
		case []any:
			i, err := strconv.Atoi(word)
			if word == "len" {
				v = len(in)
			} else if err == nil && i < len(in) {
				v = in[i]
			} else {
				return "", fmt.Errorf("no %s of %s in %s", word, path, text)
			}
		default:
			return "", fmt.Errorf("no %s of %s in %s", word, path, text)
		}
	}
	return fmt.Sprint(v), nil
}

func checkJSON(ts *testscript.TestScript, neg bool, args []string) {
	name, path, keep := strings.Cut(args[0], "=")
	if !keep {
		path = args[0]
	}
	got, err := at(ts.ReadFile("stdout"), path)
	ts.Check(err)
	if keep {
		ts.Setenv(name, got)
	} else if regexp.MustCompile("^("+args[1]+")$").MatchString(got) == neg {
		ts.Fatalf("%s is %q, want %q (not: %v)", path, got, args[1], neg)
	}
}

func checkLines(ts *testscript.TestScript, _ bool, args []string) {
	if got := strconv.Itoa(strings.Count(ts.ReadFile("stdout"), "\n")); got != args[0] {
		ts.Fatalf("%s lines, want %s", got, args[0])
	}
}

func eventually(ts *testscript.TestScript, _ bool, args []string) {
	for until := time.Now().Add(20 * time.Second); ; <-time.After(50 * time.Millisecond) {
		err := ts.Exec(args[2], args[3:]...)
		var got string
		if err == nil {
			got, err = at(ts.ReadFile("stdout"), args[0])
		}
		if err == nil && regexp.MustCompile("^("+args[1]+")$").MatchString(got) {
			return
		}
		if time.Now().After(until) {
			ts.Fatalf("%v: %s is %q, want %q: %v", args[2:], args[0], got, args[1], err)
		}
	}
}
