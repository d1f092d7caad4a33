// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/term"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// field is a field of a message as a flag: setting the one sets the other.
type field struct {
	m  protoreflect.Message
	fd protoreflect.FieldDescriptor
}

// fieldOf is the field of a message with a name, or that of the one item of its list.
func fieldOf(m protoreflect.Message, name string) field {
	if fd := m.Descriptor().Fields().ByName(protoreflect.Name(name)); fd != nil {
		return field{m, fd}
	}
	for fd := range fieldsOf(m) {
		if fd.IsList() && fd.Message() != nil {
			list := m.Mutable(fd).List()
			if list.Len() == 0 {
				list.AppendMutable()
			}
			return fieldOf(list.Get(0).Message(), name)
		}
	}
	return field{m: m}
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
	switch {
	case f.fd.Name() == "secret":
		secret, err := readSecret(text)
		f.m.Set(f.fd, protoreflect.ValueOfString(secret))
		return err
	case f.fd.IsMap():
		key, value, ok := strings.Cut(text, "=")
		if !ok {
			return fmt.Errorf("%q is not key=value", text)
		}
		f.m.Mutable(f.fd).Map().Set(protoreflect.ValueOfString(key).MapKey(), protoreflect.ValueOfString(value))
	case f.fd.IsList():
		for word := range strings.SplitSeq(text, ",") {
			v, err := f.parse(strings.TrimSpace(word))
			if err != nil {
				return err
			}
			f.m.Mutable(f.fd).List().Append(v)
		}
	default:
		v, err := f.parse(text)
		if err != nil {
			return err
		}
		f.m.Set(f.fd, v)
	}
	return nil
}

func (f field) parse(text string) (v protoreflect.Value, err error) {
	switch f.fd.Kind() {
	case protoreflect.BoolKind:
		b, err := strconv.ParseBool(text)
		return protoreflect.ValueOfBool(b), err
	case protoreflect.Int32Kind:
		n, err := strconv.ParseInt(text, 10, 32)
		return protoreflect.ValueOfInt32(int32(n)), err
	case protoreflect.Int64Kind:
		n, err := strconv.ParseInt(text, 10, 64)
		return protoreflect.ValueOfInt64(n), err
	case protoreflect.EnumKind:
		return f.parseEnum(text)
	case protoreflect.MessageKind:
		d, err := time.ParseDuration(text)
		if f.fd.Message().Name() == "Duration" {
			return protoreflect.ValueOfMessage(durationpb.New(d).ProtoReflect()), err
		}
		at := time.Now().Add(-d)
		if err != nil {
			if at, err = time.Parse(time.RFC3339Nano, text); err != nil {
				err = fmt.Errorf(
					"%q is neither a time such as 2026-12-24T18:00:00Z nor a while ago such as 90m",
					text,
				)
			}
		}
		return protoreflect.ValueOfMessage(timestamppb.New(at).ProtoReflect()), err
	}
	return protoreflect.ValueOfString(text), nil
}

func (f field) parseEnum(text string) (protoreflect.Value, error) {
	values := f.fd.Enum().Values()
	name := strings.ReplaceAll(strings.ToUpper(text), "-", "_")
	if v := values.ByName(protoreflect.Name(name)); v != nil && v.Number() != 0 {
		return protoreflect.ValueOfEnum(v.Number()), nil
	}
	names := make([]string, 0, values.Len())
	for i := range values.Len() {
		if v := values.Get(i); v.Number() != 0 {
			names = append(names, strings.ToLower(string(v.Name())))
		}
	}
	return protoreflect.Value{}, fmt.Errorf("%q is none of %s", text, strings.Join(names, ", "))
}

// show is a field's value for people; "-" when it says nothing.
func (f field) show() string {
	v, words := f.m.Get(f.fd), []string(nil)
	switch {
	case f.fd.IsMap():
		v.Map().Range(func(key protoreflect.MapKey, value protoreflect.Value) bool {
			words = append(words, key.String()+"="+value.String())
			return true
		})
		slices.Sort(words)
	case f.fd.IsList():
		for i := range v.List().Len() {
			words = append(words, f.text(v.List().Get(i)))
		}
	case f.fd.HasPresence() && !f.m.Has(f.fd):
	default:
		words = []string{f.text(v)}
	}
	if text := strings.Join(words, " "); text != "" {
		return text
	}
	return "-"
}

func (f field) text(v protoreflect.Value) string {
	switch f.fd.Kind() {
	case protoreflect.EnumKind:
		if value := f.fd.Enum().Values().ByNumber(v.Enum()); value != nil && value.Number() != 0 {
			return string(value.Name())
		}
		return ""
	case protoreflect.DoubleKind:
		return strconv.FormatFloat(v.Float(), 'f', 1, 64)
	case protoreflect.BytesKind:
		return "base64:" + base64.StdEncoding.EncodeToString(v.Bytes())
	case protoreflect.MessageKind:
		if at, ok := v.Message().Interface().(*timestamppb.Timestamp); ok {
			return at.AsTime().Local().Format("2006-01-02 15:04:05.000")
		}
		words := []string(nil)
		for fd := range fieldsOf(v.Message()) {
			if word := (field{v.Message(), fd}).show(); word != "-" {
				words = append(words, word)
			}
		}
		return strings.Join(words, " ")
	}
	return v.String()
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
