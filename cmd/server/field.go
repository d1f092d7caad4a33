// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// field is a field of a message as a flag: setting the one sets the other.
type field struct {
	m  protoreflect.Message
	fd protoreflect.FieldDescriptor
}

// fieldOf is the field of a message with a name, or that of the one item of its list.
func fieldOf(m protoreflect.Message, name string) field {
	fields := m.Descriptor().Fields()
	if fd := fields.ByName(protoreflect.Name(name)); fd != nil {
		return field{m, fd}
	}
	for i := range fields.Len() {
		if fd := fields.Get(i); fd.IsList() && fd.Message() != nil {
			list := m.Mutable(fd).List()
			if list.Len() == 0 {
				list.AppendMutable()
			}
			return fieldOf(list.Get(0).Message(), name)
		}
	}
	return field{m: m} // a bug, which panics when the command is made
}

func (f field) String() string { return "" }

// Type is what help calls the value.
func (f field) Type() string {
	switch {
	case f.fd.Name() == "secret":
		return "file"
	case f.fd.IsMap():
		return "key=value"
	case f.fd.Message() != nil:
		return strings.ToLower(string(f.fd.Message().Name()))
	case f.fd.Enum() != nil:
		return strings.ToLower(string(f.fd.Enum().Name()))
	}
	return strings.TrimRight(f.fd.Kind().String(), "3264")
}

// Set reads a value. Maps and lists grow with each.
func (f field) Set(text string) error {
	value, err := f.parse(text)
	if err != nil {
		return err
	}
	more := f.m.New().Interface()
	whole, err := json.Marshal(map[string]any{f.fd.JSONName(): value})
	if err == nil {
		err = protojson.Unmarshal(whole, more)
	}
	if err != nil {
		return fmt.Errorf("%q is no %s", text, f.Type())
	}
	proto.Merge(f.m.Interface(), more)
	return nil
}

// parse is the value as JSON has it.
func (f field) parse(text string) (any, error) {
	switch kind := f.Type(); {
	case kind == "file":
		return readSecret(text)
	case f.fd.IsMap():
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not key=value", text)
		}
		return map[string]string{key: value}, nil
	case f.fd.IsList():
		return strings.FieldsFunc(text, func(r rune) bool { return r == ',' }), nil
	case kind == "bool":
		return strconv.ParseBool(text)
	case f.fd.Enum() != nil:
		names, values := []string(nil), f.fd.Enum().Values()
		for i := 1; i < values.Len(); i++ { // the first one says nothing
			names = append(names, strings.ToLower(string(values.Get(i).Name())))
		}
		name := strings.ReplaceAll(strings.ToLower(text), "-", "_")
		if !slices.Contains(names, name) {
			return nil, fmt.Errorf("%q is none of %s", text, strings.Join(names, ", "))
		}
		return strings.ToUpper(name), nil
	case kind == "duration":
		d, err := time.ParseDuration(text)
		return strconv.FormatFloat(d.Seconds(), 'f', -1, 64) + "s", err
	case kind == "timestamp":
		if d, err := time.ParseDuration(text); err == nil && f.fd.Name() != "deliver_at" {
			return time.Now().Add(-d), nil
		}
		if _, err := time.Parse(time.RFC3339Nano, text); err != nil {
			return nil, fmt.Errorf(
				"%q is neither a time such as 2026-12-24T18:00:00Z nor, of the past, a while ago such as 90m",
				text,
			)
		}
	}
	return text, nil
}

// readSecret reads a secret from a file, or standard input without an echo.
func readSecret(file string) (string, error) {
	var text []byte
	var err error
	switch fd := int(os.Stdin.Fd()); {
	case file != "-":
		text, err = os.ReadFile(file)
	case term.IsTerminal(fd):
		text, err = term.ReadPassword(fd)
	default:
		text, err = io.ReadAll(os.Stdin)
	}
	if text = bytes.TrimRight(text, "\r\n"); err == nil && len(text) == 0 {
		err = errors.New("the secret is empty")
	}
	return string(text), err
}
