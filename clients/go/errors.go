package sandboxer

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// APIError is a problem (RFC 9457) that the platform answered with. Find it with errors.As.
type APIError struct {
	Status int
	// Code is stable and meant for programs.
	Code   string
	Detail string
	// Fault is "caller" or "platform".
	Fault string
	// NextStep says what to do now.
	NextStep  string
	RequestID string
	facts     map[string]any
}

// Offer is one way to pay what a 402 asks for, as x402 writes it. Amount is in the asset's smallest units.
type Offer struct {
	Scheme  string `json:"scheme"`
	Network string `json:"network"`
	Asset   string `json:"asset"`
	Amount  string `json:"amount"`
	PayTo   string `json:"payTo"`
}

func newAPIError(status int, head http.Header, text []byte) *APIError {
	made := &APIError{Status: status, RequestID: head.Get("x-request-id"), Fault: "caller"}
	if status >= 500 {
		made.Fault = "platform"
	}
	if json.Unmarshal(text, &made.facts) != nil || made.facts == nil {
		made.Detail = strings.TrimSpace(string(text[:min200(len(text))]))
		made.facts = map[string]any{}
	}
	for name, place := range map[string]*string{
		"code": &made.Code, "detail": &made.Detail, "fault": &made.Fault, "next_step": &made.NextStep,
	} {
		if said, ok := made.facts[name].(string); ok {
			*place = said
		}
	}
	return made
}

func min200(length int) int {
	if length > 200 {
		return 200
	}
	return length
}

// Error says what is wrong and what to do; of a 402 also what it costs.
func (e *APIError) Error() string {
	words := []string{fmt.Sprintf("sandboxer: %d %s", e.Status, e.Code)}
	if e.Detail != "" {
		words = append(words, e.Detail)
	}
	for _, offer := range e.Offers() {
		words = append(words, fmt.Sprintf("it costs %s of %s on %s (%s)", offer.Amount, offer.Asset, offer.Network, offer.Scheme))
	}
	if e.NextStep != "" {
		words = append(words, e.NextStep)
	}
	return strings.Join(words, ": ")
}

// IsPaymentRequired says whether it was refused because nobody paid; Offers says how one could.
func (e *APIError) IsPaymentRequired() bool { return e.Status == http.StatusPaymentRequired }

// Offers are the ways to pay of a 402, none of any other problem.
func (e *APIError) Offers() []Offer {
	text, err := json.Marshal(e.facts["accepts"])
	var offers []Offer
	if !e.IsPaymentRequired() || err != nil || json.Unmarshal(text, &offers) != nil {
		return nil
	}
	return offers
}

// Reason is the finer cause, where the code alone is too coarse (clock_skew, replayed, …).
func (e *APIError) Reason() string {
	reason, _ := e.Fact("reason").(string)
	return reason
}

// Fact returns a fact of the problem, wherever the server put it; nil: there is none of this name.
func (e *APIError) Fact(name string) any {
	if facts, ok := e.facts["facts"].(map[string]any); ok {
		if fact, ok := facts[name]; ok {
			return fact
		}
	}
	return e.facts[name]
}
