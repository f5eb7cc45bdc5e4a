package sandboxer

import (
	"bufio"
	"encoding/json"
	"io"
	"net/http"
	"strings"
)

// A whole event: the results of a cell are the largest.
const mostEvent = 64 << 20

// ServerEvent is one event of a stream: its name (stdout, exit, …) and what it says.
type ServerEvent struct {
	Name string
	ID   string
	Data json.RawMessage
}

// Events is a stream of events. Close hangs up, which ends what runs for this request alone.
type Events struct {
	body  io.ReadCloser
	lines *bufio.Scanner
	id    string
}

func newEvents(body io.ReadCloser) *Events {
	lines := bufio.NewScanner(body)
	lines.Buffer(make([]byte, 0, 64<<10), mostEvent)
	return &Events{body: body, lines: lines}
}

// Next returns the next event; io.EOF: there are no more. An `error` event is returned as an *APIError.
func (e *Events) Next() (ServerEvent, error) {
	var event ServerEvent
	var data []string
	for e.lines.Scan() {
		line := e.lines.Text()
		field, value, _ := strings.Cut(line, ":")
		value = strings.TrimPrefix(value, " ")
		switch {
		case line == "" && (event.Name != "" || data != nil):
			event.ID, event.Data = e.id, json.RawMessage(strings.Join(data, "\n"))
			return event, problemIn(event)
		case field == "event":
			event.Name = value
		case field == "data":
			data = append(data, value)
		case field == "id":
			e.id = value
		}
	}
	if err := e.lines.Err(); err != nil {
		return ServerEvent{}, err
	}
	return ServerEvent{}, io.EOF
}

// Close ends the stream.
func (e *Events) Close() error { return e.body.Close() }

func problemIn(event ServerEvent) error {
	if event.Name != "error" {
		return nil
	}
	var said struct {
		Status int `json:"status"`
	}
	if json.Unmarshal(event.Data, &said) != nil || said.Status == 0 {
		said.Status = http.StatusInternalServerError
	}
	return newAPIError(said.Status, http.Header{}, event.Data)
}
