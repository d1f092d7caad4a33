// SPDX-License-Identifier: Apache-2.0

package conformance

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestScenarios runs each script of testdata through every door. What the server answers must be what the script
// says, whatever the door; ids, handles and times are told by words. A line is a command, its words as
// strconv.Quote writes them where that is needed; [REST gRPC] before it names the doors that it is for, since not
// every door knows everything. See docs of the commands at (*script).commands.
func TestScenarios(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatal("no scripts", err)
	}
	srv := startServer(t)
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".txt"), func(t *testing.T) {
			t.Parallel()
			blocks := readScript(t, file)
			for i, d := range doors(t, srv.addr) {
				s := &script{
					t:       t,
					server:  srv,
					door:    d,
					suffix:  fmt.Sprintf("_%s_%d", strings.TrimSuffix(filepath.Base(file), ".txt"), i),
					sent:    map[string]sending{},
					handles: map[string][]received{},
					ids:     map[string]string{},
					orderly: map[string]bool{},
				}
				s.run(blocks)
			}
			if *rewrite {
				writeScript(t, file, blocks)
			}
		})
	}
}

// block is a command with what it came to.
type block struct {
	comment string // lines before it
	command string
	doors   []string // that it is for; all when empty
	want    string
	rewrote bool
}

func readScript(t *testing.T, file string) []*block {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var all []*block
	for part := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		b := &block{}
		for strings.HasPrefix(part, "#") {
			line, rest, _ := strings.Cut(part, "\n")
			b.comment, part = b.comment+line+"\n", rest
		}
		b.command, b.want, _ = strings.Cut(part, "\n----\n")
		b.command = strings.TrimSpace(strings.TrimSuffix(b.command, "\n----"))
		if rest, ok := strings.CutPrefix(b.command, "["); ok {
			names, _, _ := strings.Cut(rest, "]")
			b.doors = strings.Fields(names)
		}
		all = append(all, b)
	}
	return all
}

func writeScript(t *testing.T, file string, blocks []*block) {
	t.Helper()
	var out []string
	for _, b := range blocks {
		out = append(out, strings.TrimSpace(b.comment+b.command+"\n----\n"+b.want))
	}
	if err := os.WriteFile(file, []byte(strings.Join(out, "\n\n")+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// sending is a message that was sent and what came of it.
type sending struct {
	m *outgoing
	sent
}

// script is a run of a script through one door.
type script struct {
	t       *testing.T
	server  *server
	door    door
	suffix  string // of the names of topics and groups, which are the run's own
	sent    map[string]sending
	handles map[string][]received // by group and body, the newest last
	ids     map[string]string     // words by message id
	orderly map[string]bool       // groups
}

func (s *script) run(blocks []*block) {
	s.t.Helper()
	for _, b := range blocks {
		command := b.command
		if len(b.doors) > 0 {
			if !slices.Contains(b.doors, s.door.name()) {
				continue
			}
			_, command, _ = strings.Cut(command, "]")
		}
		got := strings.TrimSpace(s.do(strings.TrimSpace(command)))
		if *rewrite && !b.rewrote {
			b.want, b.rewrote = got, true
		}
		if got != b.want {
			s.t.Errorf("%s: %s\ngot:\n%s\nwant:\n%s", s.door.name(), b.command, got, b.want)
		}
	}
}

// arguments are the words of a command: those without an equals sign, and the others by their name.
type arguments struct {
	words []string
	named map[string]string
	props map[string]string // named p.…
}

func parseArguments(line string) arguments {
	a := arguments{named: map[string]string{}, props: map[string]string{}}
	for line = strings.TrimSpace(line); line != ""; line = strings.TrimSpace(line) {
		word, rest := cutWord(line, " =")
		line = rest
		if !strings.HasPrefix(line, "=") {
			a.words = append(a.words, word)
			continue
		}
		var value string
		name := word
		value, line = cutWord(line[1:], " ")
		if user, ok := strings.CutPrefix(name, "p."); ok {
			a.props[user] = value
		} else {
			a.named[name] = value
		}
	}
	return a
}

// cutWord cuts off a word, which is in quotes or ends before one of the characters of ends.
func cutWord(line, ends string) (word, rest string) {
	if quoted, err := strconv.QuotedPrefix(line); err == nil {
		if word, err = strconv.Unquote(quoted); err == nil {
			return word, line[len(quoted):]
		}
	}
	end := strings.IndexAny(line, ends)
	if end < 0 {
		end = len(line)
	}
	return line[:end], line[end:]
}

func (a *arguments) number(name string, otherwise int) int {
	if n, err := strconv.Atoi(a.named[name]); err == nil {
		return n
	}
	return otherwise
}

func (a *arguments) duration(name string, otherwise time.Duration) time.Duration {
	if d, err := time.ParseDuration(a.named[name]); err == nil {
		return d
	}
	return otherwise
}

// commands are what a script can say.
func (s *script) commands() map[string]func(*arguments) string {
	return map[string]func(*arguments) string{
		// topic NAME [type=NORMAL] [queues=1] and group NAME [orderly=true] [max=16] make one.
		"topic": s.topic, "group": s.group,
		// send TOPIC body=… [tag= keys=a,b group= delay=1s size=bytes p.NAME=value …]; batch takes bodies=a,b.
		"send": s.send, "batch": s.send, "prepare": s.send,
		// commit BODY, rollback BODY, recall BODY
		"commit": s.settleSent, "rollback": s.settleSent, "recall": s.settleSent,
		// receive GROUP TOPIC [max=32] [wait=10s] [tag= | sql=]; a message is known by its body from then on.
		"receive": s.receive,
		// ack GROUP TOPIC BODY [handle=older|text] [of=GROUP that received it], nack, extend … by=30s, bury
		"ack": s.settle, "nack": s.settle, "extend": s.settle, "bury": s.settle,
	}
}

// real is the name of a topic or group in this run. Dead letters are in a topic that is named after their group.
func (s *script) real(name string) string { return name + s.suffix }

func (s *script) do(line string) string {
	name, rest, _ := strings.Cut(line, " ")
	a := parseArguments(rest)
	command := s.commands()[name]
	if command == nil {
		s.t.Fatalf("%q is no command", line)
	}
	a.named["command"] = name
	return command(&a)
}

func outcome(err error) string {
	if err != nil {
		return "refused: " + kindOf(err)
	}
	return "ok"
}

func (s *script) topic(a *arguments) string {
	typ := normal
	if a.named["type"] != "" {
		typ = a.named["type"]
	}
	s.server.topic(s.real(a.words[0]), typ, int32(a.number("queues", 1)))
	return "ok"
}

func (s *script) group(a *arguments) string {
	s.orderly[a.words[0]] = a.named["orderly"] == "true"
	s.server.group(s.real(a.words[0]), s.orderly[a.words[0]], a.number("max", 16))
	return "ok"
}

func (s *script) send(a *arguments) string {
	var keys []string
	if a.named["keys"] != "" {
		keys = strings.Split(a.named["keys"], ",")
	}
	bodies := []string{a.named["body"]}
	if a.named["command"] == "batch" {
		bodies = strings.Split(a.named["bodies"], ",")
	}
	if n := a.number("size", -1); n >= 0 {
		bodies = []string{strings.Repeat("x", n)}
	}
	var messages []*outgoing
	for _, body := range bodies {
		m := &outgoing{
			topic: s.real(a.words[0]), body: body, tag: a.named["tag"], keys: keys, group: a.named["group"],
			delay: a.duration("delay", 0), props: a.props,
		}
		messages = append(messages, m)
	}
	var all []sent
	var err error
	if a.named["command"] == "prepare" {
		all = make([]sent, 1)
		all[0], err = s.door.prepare(messages[0])
	} else {
		all, err = s.door.send(messages...)
	}
	if err != nil {
		s.t.Logf("%s: %v", s.door.name(), err)
		return outcome(err)
	}
	out := "ok"
	for i, one := range all {
		s.sent[messages[i].body] = sending{messages[i], one}
		s.ids[one.id] = "that-of-" + shortened(messages[i].body)
		if messages[i].delay == 0 && a.named["command"] != "prepare" {
			out += fmt.Sprintf(" offset=%d", one.offset)
		}
		if one.recall != "" {
			out += " recall=<handle>"
		}
	}
	return out
}

func shortened(body string) string {
	if len(body) > 40 {
		return fmt.Sprintf("%s…%d", body[:4], len(body))
	}
	return body
}

func (s *script) settleSent(a *arguments) string {
	of := s.sent[a.words[0]]
	if a.named["command"] == "recall" {
		return outcome(s.door.recall(of.m.topic, of.sent))
	}
	return outcome(s.door.end(of.m, of.sent, a.named["command"] == "commit"))
}

func (s *script) receive(a *arguments) string {
	got, err := s.door.receive(&receiving{
		group:     s.real(a.words[0]),
		topic:     s.real(a.words[1]),
		count:     a.number("max", 32),
		invisible: 30 * time.Second,
		wait: a.duration(
			"wait",
			20*time.Second,
		),
		tag:     a.named["tag"],
		sql:     a.named["sql"],
		orderly: s.orderly[a.words[0]],
	})
	if err != nil {
		return outcome(err)
	}
	var lines []string
	for i := range got {
		m := &got[i]
		key := a.words[0] + " " + m.body
		s.handles[key] = append(s.handles[key], *m)
		if want := s.real(a.words[1]); m.topic != want {
			lines = append(lines, "topic "+m.topic+" in place of "+want)
		}
		shown := *m
		shown.body = shortened(m.body)
		lines = append(lines, shown.text(func(id string) string { return s.ids[id] }))
	}
	if len(lines) == 0 {
		return "nothing"
	}
	return strings.Join(lines, "\n")
}

func (s *script) settle(a *arguments) string {
	owner := a.words[0]
	if a.named["of"] != "" {
		owner = a.named["of"]
	}
	key := owner + " " + a.words[2]
	all := s.handles[key]
	if len(all) == 0 {
		s.t.Fatalf("%s was never received", key)
	}
	m := all[len(all)-1]
	switch a.named["handle"] {
	case "":
	case "older":
		m = all[len(all)-2]
	default:
		m.handle = a.named["handle"]
	}
	group, topic := s.real(a.words[0]), s.real(a.words[1])
	var err error
	switch a.named["command"] {
	case "ack":
		err = s.door.ack(group, topic, m.handle)
	case "bury":
		err = s.door.bury(group, topic, &m)
	case "nack":
		_, err = s.door.change(group, topic, m.handle, 0)
	case "extend":
		m.handle, err = s.door.change(group, topic, m.handle, a.duration("by", time.Minute))
		if err == nil {
			s.handles[key] = append(all, m)
		}
	}
	return outcome(err)
}
