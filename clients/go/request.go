package sandboxer

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"time"
)

const eventStream = "text/event-stream"

// What a request is made of; it can be sent again.
type request struct {
	op      operation
	target  string
	headers map[string]string
	body    io.ReadSeeker
	length  int64
	sha256  string
}

// made reads what goes where from the tags of the input's fields; what has none of path, query and header is JSON.
func made(op operation, in any) (*request, error) {
	r := &request{op: op, headers: map[string]string{}}
	query := url.Values{}
	path := op.path
	if in != nil {
		fields := reflect.ValueOf(in)
		for i := 0; i < fields.NumField(); i++ {
			tag, value := fields.Type().Field(i).Tag, fields.Field(i)
			words := wordsOf(value)
			if name := tag.Get("path"); name != "" {
				if len(words) != 1 || words[0] == "" {
					return nil, fmt.Errorf("sandboxer: %s needs %s", op.id, fields.Type().Field(i).Name)
				}
				path = strings.Replace(path, "{"+name+"}", url.PathEscape(words[0]), 1)
			} else if name := tag.Get("query"); name != "" {
				query[name] = words
			} else if name := tag.Get("header"); name != "" && len(words) == 1 && words[0] != "" {
				r.headers[name] = words[0]
			}
		}
	}
	r.target = path
	if encoded := query.Encode(); encoded != "" {
		r.target += "?" + encoded
	}
	return r, r.readBody(in)
}

func (r *request) readBody(in any) error {
	digest := sha256.New()
	switch {
	case r.op.sends == "":
		r.body = bytes.NewReader(nil)
	case r.op.sends == "application/json":
		text, err := json.Marshal(in)
		if err != nil {
			return fmt.Errorf("sandboxer: %w", err)
		}
		r.body = bytes.NewReader(text)
	default:
		body, _ := reflect.ValueOf(in).FieldByName("Body").Interface().(io.ReadSeeker)
		if body == nil {
			return fmt.Errorf("sandboxer: %s needs Body", r.op.id)
		}
		r.body = body
	}
	length, err := io.Copy(digest, r.body)
	r.length, r.sha256 = length, hex.EncodeToString(digest.Sum(nil))
	if err != nil {
		return fmt.Errorf("sandboxer: the body cannot be read: %w", err)
	}
	if r.op.sends != "" {
		r.headers["content-type"] = r.op.sends
	}
	return nil
}

// wordsOf returns a value as a path, a query or a header has it; nothing for what was left out.
func wordsOf(value reflect.Value) []string {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if value.IsNil() {
			return nil
		}
		return wordsOf(value.Elem())
	case reflect.Slice:
		var words []string
		for i := 0; i < value.Len(); i++ {
			words = append(words, wordsOf(value.Index(i))...)
		}
		return words
	case reflect.String:
		return []string{value.String()}
	case reflect.Bool:
		return []string{strconv.FormatBool(value.Bool())}
	case reflect.Int64:
		return []string{strconv.FormatInt(value.Int(), 10)}
	case reflect.Float64:
		return []string{strconv.FormatFloat(value.Float(), 'f', -1, 64)}
	}
	if moment, ok := value.Interface().(time.Time); ok {
		return []string{moment.UTC().Format(time.RFC3339Nano)}
	}
	return nil
}

// askedTimeout returns what the caller gives the command or the cell itself.
func askedTimeout(in any) time.Duration {
	if in == nil {
		return 0
	}
	for _, name := range []string{"TimeoutS", "TTLS", "WaitS"} {
		if field := reflect.ValueOf(in).FieldByName(name); field.IsValid() {
			if words := wordsOf(field); len(words) == 1 {
				seconds, _ := strconv.ParseFloat(words[0], 64)
				return time.Duration(seconds * float64(time.Second))
			}
		}
	}
	return 0
}

func (c *Client) built(ctx context.Context, r *request) (*http.Request, error) {
	if _, err := r.body.Seek(0, io.SeekStart); err != nil {
		return nil, fmt.Errorf("sandboxer: the body cannot be read again: %w", err)
	}
	// Not the reader itself: net/http would close a file that is the caller's.
	sent, err := http.NewRequestWithContext(ctx, r.op.method, c.settings.URL+r.target, io.NopCloser(r.body))
	if err != nil {
		return nil, fmt.Errorf("sandboxer: %w", err)
	}
	sent.ContentLength = r.length
	if r.length == 0 {
		sent.Body = http.NoBody
	}
	for name, value := range r.headers {
		sent.Header.Set(name, value)
	}
	sent.Header.Set("user-agent", "sandboxer-go/0.1")
	return sent, c.sign(sent, r.sha256)
}

// sign names who calls: by signature v2, or by the bearer token; a stranger by nothing.
func (c *Client) sign(sent *http.Request, digest string) error {
	if c.settings.APIKey != "" {
		sent.Header.Set("authorization", "Bearer "+c.settings.APIKey)
		return nil
	}
	if c.settings.PublicKey == "" {
		return nil
	}
	random := make([]byte, 18)
	if _, err := rand.Read(random); err != nil {
		return fmt.Errorf("sandboxer: %w", err)
	}
	nonce := base64.RawURLEncoding.EncodeToString(random)
	c.lock.Lock()
	stamp := strconv.FormatInt(time.Now().Add(c.ahead).Unix(), 10)
	c.lock.Unlock()
	// Of a proxy of the operator's below a path, the platform sees what follows it.
	base, err := url.Parse(c.settings.URL)
	if err != nil {
		return fmt.Errorf("sandboxer: %w", err)
	}
	target := strings.TrimPrefix(sent.URL.RequestURI(), base.EscapedPath())
	mac := hmac.New(sha256.New, []byte(c.settings.SecretKey))
	fmt.Fprintf(mac, "v2:%s:%s:%s:%s:%s", stamp, nonce, sent.Method, target, digest)
	sent.Header.Set("authorization", "Bearer "+c.settings.PublicKey)
	sent.Header.Set("x-timestamp", stamp)
	sent.Header.Set("x-nonce", nonce)
	sent.Header.Set("x-content-sha256", digest)
	sent.Header.Set("x-signature", hex.EncodeToString(mac.Sum(nil)))
	return nil
}
