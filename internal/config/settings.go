// SPDX-License-Identifier: Apache-2.0

package config

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A Setting is one key of the configuration. Its flag is the key in lower case with dashes unless Flag says
// otherwise, its environment variable ROQUET_ and the key in upper case with underscores.
type Setting struct {
	Key     string // as in broker.conf
	Flag    string // name of the command-line flag
	Usage   string // one line: meaning, unit
	Allowed string // the words of which it is one, or least…most; "" for all that Set takes
	Dynamic bool   // may be changed at run time by UPDATE_BROKER_CONFIG
	value   any    // pointer to the field
}

// Text is the setting's present value as it would be written in a file.
func (s *Setting) Text() string {
	switch v := s.value.(type) {
	case *string:
		return *v
	case *secret:
		return string(*v)
	case *bool:
		return strconv.FormatBool(*v)
	case *int:
		return strconv.Itoa(*v)
	case *int32:
		return strconv.Itoa(int(*v))
	case *int64:
		return strconv.FormatInt(*v, 10)
	case *[]string:
		return strings.Join(*v, ";")
	case *millis:
		return strconv.FormatInt(time.Duration(*v).Milliseconds(), 10)
	case *hours:
		return strconv.FormatFloat(time.Duration(*v).Hours(), 'f', -1, 64)
	default:
		panic(fmt.Sprintf("setting %s has a value of type %T", s.Key, v))
	}
}

// Shown is Text for others to see: of a secret only whether it is set.
func (s *Setting) Shown() string {
	if v, ok := s.value.(*secret); ok && *v != "" {
		return "(secret)"
	}
	return s.Text()
}

// Set parses text into the setting. The error names the key, the text and what was wanted.
func (s *Setting) Set(text string) error {
	text = strings.TrimSpace(text)
	var err error
	switch v := s.value.(type) {
	case *string:
		*v = text
	case *secret:
		*v = secret(text)
	case *bool:
		*v, err = strconv.ParseBool(strings.ToLower(text))
	case *int:
		*v, err = strconv.Atoi(text)
	case *int32:
		var n int64
		n, err = strconv.ParseInt(text, 10, 32)
		*v = int32(n)
	case *int64:
		*v, err = parseBytes(text)
	case *[]string:
		*v = strings.FieldsFunc(text, func(r rune) bool { return r == ';' || r == ',' || r == ' ' })
	case *millis:
		*(*time.Duration)(v), err = parseDuration(text, time.Millisecond)
	case *hours:
		*(*time.Duration)(v), err = parseDuration(text, time.Hour)
	default:
		panic(fmt.Sprintf("setting %s has a value of type %T", s.Key, v))
	}
	if err != nil {
		return fmt.Errorf("%s: %q cannot be read as %s", s.Key, text, s.wanted())
	}
	return nil
}

// check tells whether the value is allowed, and if not what it is.
func (s *Setting) check() (fault string, ok bool) {
	words, text := strings.Fields(s.Allowed), s.Text()
	least, most, isRange := strings.Cut(s.Allowed, "…")
	switch {
	case isRange:
		low, _ := parseBytes(least) // the tests read them all
		high, err := parseBytes(most)
		n, _ := strconv.ParseInt(text, 10, 64)
		return "outside " + least + " … " + most, n >= low && (err != nil || n <= high)
	case len(words) == 2:
		return "neither " + words[0] + " nor " + words[1], slices.Contains(words, text)
	}
	return "none of " + strings.Join(words, ", "), len(words) == 0 || slices.Contains(words, text)
}

func (s *Setting) wanted() string {
	switch s.value.(type) {
	case *bool:
		return "true or false"
	case *millis:
		return "milliseconds or a duration such as 30s"
	case *hours:
		return "hours or a duration such as 90m"
	default:
		return "a whole number"
	}
}

// secret is a text that nobody is shown.
type secret string

// millis and hours are durations whose bare number has that unit in the original's files.
type (
	millis time.Duration
	hours  time.Duration
)

func parseDuration(text string, unit time.Duration) (time.Duration, error) {
	if n, err := strconv.ParseFloat(text, 64); err == nil {
		if n < 0 || n > float64(math.MaxInt64)/float64(unit) {
			return 0, strconv.ErrRange
		}
		return time.Duration(n * float64(unit)), nil
	}
	d, err := time.ParseDuration(text)
	if err == nil && d < 0 {
		err = strconv.ErrRange
	}
	return d, err
}

// parseBytes reads a number with an optional KiB, MiB or GiB.
func parseBytes(text string) (int64, error) {
	shift := 0
	for suffix, n := range map[string]int{"KiB": 10, "MiB": 20, "GiB": 30, "TiB": 40} {
		if rest, ok := strings.CutSuffix(text, suffix); ok {
			text, shift = strings.TrimSpace(rest), n
		}
	}
	n, err := strconv.ParseInt(text, 10, 64)
	if err == nil && shift > 0 && (n < 0 || n > math.MaxInt64>>shift) {
		err = strconv.ErrRange
	}
	return n << shift, err
}

// Environment is the variable that sets the key: brokerIP1 → ROQUET_BROKER_IP1.
func (s *Setting) Environment() string {
	var out strings.Builder
	out.WriteString("ROQUET_")
	for i, r := range strings.ReplaceAll(s.Key, ".", "_") {
		upper := r >= 'A' && r <= 'Z'
		if upper && i > 0 && (s.Key[i-1] < 'A' || s.Key[i-1] > 'Z') {
			out.WriteByte('_')
		}
		out.WriteString(strings.ToUpper(string(r)))
	}
	return out.String()
}
