// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"mime"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/grpc-gateway/v2/runtime"
	"google.golang.org/protobuf/encoding/protojson"
	protobuf "google.golang.org/protobuf/proto"
)

type proto = protobuf.Message

// Media types. curl's own is taken for JSON where only JSON makes sense.
const (
	typeJSON   = "application/json"
	typeForm   = "application/x-www-form-urlencoded"
	typeNDJSON = "application/x-ndjson"
	typeRaw    = "application/octet-stream"
	typeEvents = "text/event-stream"
)

// codec is the JSON of this door: what is empty is written too, what is unknown is refused, an answer ends with a
// line feed. 64-bit numbers are written as strings and read in both forms, enums written by name and read by name
// or number.
type codec struct{ runtime.JSONPb }

// Marshal returns a message as JSON.
func (*codec) Marshal(v any) ([]byte, error) {
	m, _ := v.(proto) // all answers are messages
	b, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	return append(b, '\n'), err
}

// NewDecoder reads one JSON value and nothing after it.
func (c *codec) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		b, err := io.ReadAll(r)
		switch {
		case err != nil:
			return err
		case len(bytes.TrimSpace(b)) == 0:
			return io.EOF
		}
		if err = c.Unmarshal(b, v); err == nil && !json.Valid(b) {
			err = errors.New("more than one JSON value")
		}
		return err
	})
}

// encode returns a message as JSON on one line, without its end.
func (d *door) encode(m proto) []byte {
	b, err := (&codec{}).Marshal(m)
	if err != nil { // a bug: all texts are cleaned
		d.log.Error("answer could not be encoded", slog.Any("error", err))
	}
	return bytes.TrimSpace(b)
}

// readJSON reads a message; an empty text changes nothing.
func readJSON(b []byte, m proto) error {
	if len(bytes.TrimSpace(b)) == 0 {
		return nil
	}
	if err := protojson.Unmarshal(b, m); err != nil {
		return badRequest("%s", err)
	}
	return nil
}

// mediaType is the type of a request's body; "" if it has none.
func mediaType(r *http.Request) string {
	header := r.Header.Get("Content-Type")
	if name, _, err := mime.ParseMediaType(header); err == nil {
		return name
	}
	return header
}

func isJSON(name string) bool { return name == typeJSON || strings.HasSuffix(name, "+json") }

// accepts tells whether the client names the type among those it wants.
func accepts(r *http.Request, name string) bool {
	return strings.Contains(strings.Join(r.Header.Values("Accept"), ","), name)
}

// maxBody is the largest body of a request for one message: it may be in base64, with properties around it.
func (d *door) maxBody() int64 { return int64(d.cfg.MaxBodyBytes())*4/3 + 64<<10 }

// trustedBytes is how much room a body gets because the request says that it is so large.
const trustedBytes = 64 << 10

// readBody reads a request's body. Error: PAYLOAD_TOO_LARGE.
func (d *door) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := d.maxBody()
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	b := bytes.NewBuffer(make([]byte, 0, min(max(r.ContentLength, 0), trustedBytes)+bytes.MinRead))
	_, err := b.ReadFrom(http.MaxBytesReader(w, r.Body, limit))
	return b.Bytes(), readError(err)
}

// servePlain serves what is plain JSON.
func (d *door) servePlain(w http.ResponseWriter, r *http.Request) {
	if d.cfg.Trace != nil {
		if at := d.describedAt(r); at != nil {
			r.Pattern = r.Method + " " + at.route
		}
	}
	if r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
		name := mediaType(r)
		body, err := d.readBody(w, r)
		if name != "" && name != typeForm && !isJSON(name) {
			err = &refusal{http.StatusUnsupportedMediaType, "UNSUPPORTED_MEDIA_TYPE", "a body of type " + name +
				", wanted " + typeJSON}
		}
		if err != nil {
			d.fail(w, err)
			return
		}
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	r.Header.Set("Content-Type", typeJSON) // there is one codec for all, and no complaint about what is not looked at
	d.plain.ServeHTTP(w, r)
}
