// SPDX-License-Identifier: Apache-2.0

package config

import (
	"cmp"
	_ "embed" // the list of the original's keys
	"errors"
	"fmt"
	"io"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/agnivade/levenshtein"
	"go.yaml.in/yaml/v3"
)

// originalKeys are all keys of Apache RocketMQ 5.5's broker.conf and namesrv.conf. A file may carry those
// that mean nothing here (thread pools, mapped files, page cache); Loaded.Ignored names them, so that nobody
// believes they work.
// Source: field names of BrokerConfig, MessageStoreConfig, NamesrvConfig, NettyServerConfig, AuthConfig.
//
//go:embed original_keys.txt
var originalKeys string

// Loaded is a configuration together with where it came from.
type Loaded struct {
	*Config
	Origin  map[string]string // key → "file …", "environment …", "flag …"; absent = default
	Ignored []string          // keys of the original that have no effect here
}

// Load reads the layers: defaults, then file (may be empty), then environ ("NAME=value" as from os.Environ),
// then flags (key → text). Unknown keys and values that cannot be read are reported all at once.
func Load(file string, environ []string, flags map[string]string) (*Loaded, error) {
	l := &Loaded{Config: New(), Origin: map[string]string{}}
	var faults []error
	if file != "" {
		values, err := readFile(file)
		if err != nil {
			return nil, err
		}
		faults = append(faults, l.apply(values, "file "+file))
	}
	faults = append(faults, l.applyEnvironment(environ), l.apply(flags, "flag"))
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return l, l.Validate()
}

func (l *Loaded) apply(values map[string]string, origin string) error {
	ignored, err := l.take(values, origin+": ", func(s *Setting, text string) error {
		l.Origin[s.Key] = origin
		return s.Set(text)
	})
	l.Ignored = append(l.Ignored, ignored...)
	return err
}

// take gives the values to set, each with its setting, and returns the keys of the original that mean nothing here.
// What set refuses and what nobody knows are faults, which begin with prefix.
func (c *Config) take(
	values map[string]string, prefix string, set func(s *Setting, text string) error,
) (ignored []string, err error) {
	settings := c.byKey()
	var faults []error
	for _, key := range slices.Sorted(maps.Keys(values)) {
		setting, known := settings[key]
		switch {
		case known:
			if err := set(setting, values[key]); err != nil {
				faults = append(faults, fmt.Errorf("%s%w", prefix, err))
			}
		case isOriginalKey(key):
			ignored = append(ignored, key)
		default:
			faults = append(faults, fmt.Errorf("%sunknown key %q; the nearest known key is %q", prefix, key,
				Nearest(key, maps.Keys(settings))))
		}
	}
	return ignored, errors.Join(faults...)
}

// clientVariables are the environment of the commands that talk to a server; they say nothing to the server itself.
var clientVariables = [...]string{
	"ROQUET_SERVER", "ROQUET_USER", "ROQUET_PASSWORD", "ROQUET_PASSWORD_FILE", "ROQUET_TOKEN", "ROQUET_CA",
	"ROQUET_SECRET",
}

func (l *Loaded) applyEnvironment(environ []string) error {
	names := map[string]string{}
	for _, s := range l.Settings() {
		names[s.Environment()] = s.Key
	}
	var faults []error
	for _, pair := range environ {
		name, value, _ := strings.Cut(pair, "=")
		if !strings.HasPrefix(name, "ROQUET_") || slices.Contains(clientVariables[:], name) {
			continue
		}
		key, known := names[name]
		if !known {
			faults = append(faults, fmt.Errorf("environment: unknown variable %s; the nearest known one is %s",
				name, Nearest(name, maps.Keys(names))))
			continue
		}
		faults = append(faults, l.apply(map[string]string{key: value}, "environment "+name))
	}
	return errors.Join(faults...)
}

// readFile reads YAML (.yaml, .yml) or the original's properties (anything else).
func readFile(path string) (map[string]string, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read configuration: %w", err)
	}
	ext := strings.ToLower(filepath.Ext(path))
	if ext != ".yaml" && ext != ".yml" {
		return ParseProperties(string(text))
	}
	var tree map[string]any
	if err := yaml.Unmarshal(text, &tree); err != nil {
		return nil, fmt.Errorf("read configuration %s: %w", path, err)
	}
	values := map[string]string{}
	for key, value := range tree {
		switch v := value.(type) {
		case map[string]any:
			return nil, fmt.Errorf("read configuration %s: %s holds a table; keys are flat: key: value", path, key)
		case []any:
			words := make([]string, len(v))
			for i, w := range v {
				words[i] = fmt.Sprint(w)
			}
			values[key] = strings.Join(words, ";")
		case nil:
			values[key] = ""
		default:
			values[key] = fmt.Sprint(v)
		}
	}
	return values, nil
}

// ParseProperties reads Java's properties format as far as RocketMQ's files use it: key=value or key:value
// lines, comments from # or !, a backslash at the end of a line joins the next.
func ParseProperties(text string) (map[string]string, error) {
	values := map[string]string{}
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\\\n", "")
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		at := strings.IndexAny(line, "=:")
		if at <= 0 {
			return nil, fmt.Errorf("line %d: %q is not key=value", i+1, line)
		}
		values[strings.TrimSpace(line[:at])] = strings.TrimSpace(line[at+1:])
	}
	return values, nil
}

// Print writes the effective configuration as a file that Load reads back, each value with its origin behind
// it.
func (l *Loaded) Print(w io.Writer) error {
	for _, s := range l.Settings() {
		line := s.Key + "=" + s.Shown()
		if s.Shown() != s.Text() {
			line = "# " + line
		}
		origin := cmp.Or(l.Origin[s.Key], "default")
		if _, err := fmt.Fprintf(w, "# %s (%s)\n%s\n", s.Usage, origin, line); err != nil {
			return err
		}
	}
	return nil
}

// ErrFixed is of a setting that takes effect only at a start.
var ErrFixed = errors.New("cannot be changed at run time")

// Update returns a copy of c with the values set, as UPDATE_BROKER_CONFIG asks for. Nothing is changed when
// any key is unknown, cannot be changed at run time, or has a value that cannot work. Keys of the original
// without effect are accepted.
func (c *Config) Update(values map[string]string) (*Config, error) {
	next := *c
	_, err := next.take(values, "", func(s *Setting, text string) error {
		if !s.Dynamic && s.Text() != strings.TrimSpace(text) {
			return fmt.Errorf("%s %w: set it in the file and restart", s.Key, ErrFixed)
		}
		return s.Set(text)
	})
	if err != nil {
		return nil, err
	}
	return &next, next.Validate()
}

func (c *Config) byKey() map[string]*Setting {
	all := c.Settings()
	m := make(map[string]*Setting, len(all))
	for i := range all {
		m[all[i].Key] = &all[i]
	}
	return m
}

func isOriginalKey(key string) bool {
	return key != "" && strings.Contains("\n"+originalKeys, "\n"+key+"\n")
}

// Nearest returns the one of words, of which there is one at least, that word was most likely meant to be.
func Nearest(word string, words iter.Seq[string]) string {
	return slices.MinFunc(slices.Sorted(words), func(a, b string) int {
		return levenshtein.ComputeDistance(strings.ToLower(word), strings.ToLower(a)) -
			levenshtein.ComputeDistance(strings.ToLower(word), strings.ToLower(b))
	})
}
