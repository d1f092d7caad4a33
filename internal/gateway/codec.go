// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
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
	m, ok := v.(proto)
	if !ok {
		return json.Marshal(v)
	}
	b, err := protojson.MarshalOptions{EmitDefaultValues: true}.Marshal(m)
	return append(b, '\n'), err
}

// NewDecoder reads one JSON value and nothing after it.
func (c *codec) NewDecoder(r io.Reader) runtime.Decoder {
	return runtime.DecoderFunc(func(v any) error {
		b, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		if len(bytes.TrimSpace(b)) == 0 {
			return io.EOF
		}
		if err := c.Unmarshal(b, v); err != nil {
			return err
		}
		if !json.Valid(b) {
			return errors.New("more than one JSON value")
		}
		return nil
	})
}

// readJSON reads a message; an empty text changes nothing.
func readJSON(b []byte, m proto) error {
	if len(bytes.TrimSpace(b)) == 0 {
		return nil
	}
	if err := protojson.Unmarshal(b, m); err != nil {
		return badRequest(err.Error())
	}
	return nil
}

// mediaType is the type of a request's body; "" if there is none.
func mediaType(r *http.Request) string {
	name, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil {
		return r.Header.Get("Content-Type")
	}
	return name
}

func isJSON(name string) bool { return name == typeJSON || strings.HasSuffix(name, "+json") }

// accepts tells whether the client names the type among those it wants.
func accepts(r *http.Request, name string) bool {
	for _, value := range r.Header.Values("Accept") {
		if strings.Contains(value, name) {
			return true
		}
	}
	return false
}

// maxBody is the largest body of a request for one message: it may be in base64, with properties around it.
func (d *door) maxBody() int64 { return int64(d.cfg.MaxBodyBytes())*4/3 + 64<<10 }

// readBody reads a request's body. Error: PAYLOAD_TOO_LARGE.
func (d *door) readBody(w http.ResponseWriter, r *http.Request) ([]byte, error) {
	limit := d.maxBody()
	if r.ContentLength > limit {
		return nil, tooLarge(limit)
	}
	from := http.MaxBytesReader(w, r.Body, limit)
	if r.ContentLength < 0 {
		b, err := io.ReadAll(from)
		return b, readError(err)
	}
	b := make([]byte, r.ContentLength)
	_, err := io.ReadFull(from, b)
	return b, readError(err)
}

// servePlain serves what is plain JSON.
func (d *door) servePlain(w http.ResponseWriter, r *http.Request) {
	if r.Method == http.MethodPost || r.Method == http.MethodPut || r.Method == http.MethodPatch {
		if name := mediaType(r); name != "" && name != typeForm && !isJSON(name) {
			d.fail(w, &refusal{
				status: http.StatusUnsupportedMediaType, reason: "UNSUPPORTED_MEDIA_TYPE",
				text: "a body of type " + name + ", wanted " + typeJSON,
			})
			return
		}
		body, err := d.readBody(w, r)
		if err != nil {
			d.fail(w, err)
			return
		}
		r = r.WithContext(context.WithValue(r.Context(), headerKey{}, r.Header))
		r.Body = io.NopCloser(bytes.NewReader(body))
	}
	d.plain.ServeHTTP(w, r)
}

type headerKey struct{}

// incomingHeader is the header of a request that went through servePlain; nil if it had no body.
func incomingHeader(ctx context.Context) http.Header {
	header, _ := ctx.Value(headerKey{}).(http.Header)
	return header
}
