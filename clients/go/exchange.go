package sandboxer

import (
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"
)

const (
	mostProblem = 1 << 20
	longestWait = 20
)

var pauses = []time.Duration{100 * time.Millisecond, 400 * time.Millisecond}

// What was tried so far for one call.
type tries struct {
	lost                 int
	hasResigned, hasPaid bool
}

// open returns the answer of a success, whose body the caller closes; everything else is an error. A refused signature
// is repeated once when the server said how to do better. Lost connections and busy platforms are tried again only by
// calls that may be repeated. A 402 is paid once, if Settings.Pay does.
func (c *Client) open(ctx context.Context, op operation, in any, isStream bool) (*http.Response, error) {
	r, err := made(op, in)
	if err != nil {
		return nil, err
	}
	if isStream {
		r.headers["accept"] = eventStream
	}
	_, isKeyed := r.headers["idempotency-key"]
	isRepeatable := op.isRepeatable || isKeyed || op.method == "GET" || op.method == "HEAD"
	var tried tries
	for {
		sent, err := c.built(ctx, r)
		if err != nil {
			return nil, err
		}
		response, err := c.http.Do(sent)
		if err == nil && isSuccess(op, response.StatusCode) {
			return response, nil
		}
		var pause time.Duration
		var goesOn bool
		if err != nil {
			err = fmt.Errorf("sandboxer: could not reach %s: %w", c.settings.URL, err)
			pause, goesOn = tried.afterLost(isRepeatable)
		} else {
			problem := problemOf(response)
			err = problem
			if pause, goesOn = c.afterRefusal(problem, &tried); !goesOn {
				if goesOn, err = c.paid(ctx, r, response, problem, &tried); goesOn {
					isRepeatable = true
				} else if err == error(problem) {
					pause, goesOn = tried.afterBusy(response, isRepeatable)
				}
			}
		}
		if !goesOn {
			return nil, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

func isSuccess(op operation, status int) bool {
	for _, also := range op.also {
		if status == also {
			return true
		}
	}
	return status < 300
}

func problemOf(response *http.Response) *APIError {
	defer response.Body.Close()
	text, _ := io.ReadAll(io.LimitReader(response.Body, mostProblem))
	return newAPIError(response.StatusCode, response.Header, text)
}

func (t *tries) afterLost(isRepeatable bool) (time.Duration, bool) {
	if !isRepeatable || t.lost >= len(pauses) {
		return 0, false
	}
	t.lost++
	return pauses[t.lost-1], true
}

func (t *tries) afterBusy(response *http.Response, isRepeatable bool) (time.Duration, bool) {
	switch response.StatusCode {
	case http.StatusBadGateway, http.StatusGatewayTimeout:
		return t.afterLost(isRepeatable)
	case http.StatusTooManyRequests, http.StatusServiceUnavailable:
		seconds, err := strconv.Atoi(response.Header.Get("retry-after"))
		if err != nil || seconds > longestWait {
			return 0, false
		}
		_, goesOn := t.afterLost(isRepeatable)
		return time.Duration(seconds) * time.Second, goesOn
	}
	return 0, false
}

func (c *Client) afterRefusal(problem *APIError, t *tries) (time.Duration, bool) {
	if t.hasResigned || problem.Status != http.StatusUnauthorized {
		return 0, false
	}
	t.hasResigned = true
	switch problem.Reason() {
	case "clock_skew":
		server, ok := momentOf(problem.Fact("server_time"))
		if ok {
			c.lock.Lock()
			c.ahead = time.Until(server)
			c.lock.Unlock()
		}
		return 0, ok
	case "before_start":
		// Timestamps are whole seconds: one signed in the second of the start looks older than it.
		return time.Second, true
	}
	return 0, false
}

func momentOf(said any) (time.Time, bool) {
	if seconds, ok := said.(float64); ok {
		return time.UnixMicro(int64(seconds * 1e6)), true
	}
	text, _ := said.(string)
	if seconds, err := strconv.ParseFloat(text, 64); err == nil {
		return time.UnixMicro(int64(seconds * 1e6)), true
	}
	moment, err := time.Parse(time.RFC3339, text)
	return moment, err == nil
}

// paid lets Settings.Pay answer a 402. The same payment may be sent again: it pays once.
func (c *Client) paid(
	ctx context.Context, r *request, response *http.Response, problem *APIError, t *tries,
) (bool, error) {
	header := response.Header.Get("payment-required")
	if problem.Status != http.StatusPaymentRequired || header == "" || c.settings.Pay == nil || t.hasPaid {
		return false, problem
	}
	required, err := base64.StdEncoding.DecodeString(header)
	if err != nil {
		return false, problem
	}
	signed, err := c.settings.Pay(ctx, required)
	if err != nil || signed == "" {
		if err != nil {
			return false, fmt.Errorf("sandboxer: the payment was not signed: %w", err)
		}
		return false, problem
	}
	t.hasPaid = true
	r.headers["payment-signature"] = signed
	return true, nil
}
