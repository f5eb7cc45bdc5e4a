// Package sandboxer is the client of sandboxer: walled computers that agents find, pay for and use.
//
// Every operation of the API is a method of Client, and takes a struct of its own. What may be left out is a pointer, a
// slice or a map; Some makes a pointer of a value.
//
//	client, err := sandboxer.New(sandboxer.Settings{})
//	sandbox, err := client.CreateSandbox(ctx, sandboxer.CreateSandboxInput{TTL: sandboxer.Some("10m")})
//	done, err := client.RunCommand(ctx, sandboxer.RunCommandInput{SandboxID: sandbox.ID, Command: sandboxer.Some("echo hi")})
package sandboxer

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"
)

// DefaultURL is where a platform of this machine listens.
const DefaultURL = "http://127.0.0.1:7777"

// Settings say where the platform is, and who calls. What is empty is found as the Python client finds it: in
// SANDBOXER_URL, SANDBOXER_PUBLIC_KEY, SANDBOXER_SECRET_KEY and SANDBOXER_API_KEY, then in an owner.json
// (SANDBOXER_CREDENTIALS, SANDBOXER_STATE_DIR).
type Settings struct {
	URL       string
	PublicKey string
	SecretKey string
	// APIKey is a bearer token (sk_…), sent instead of signing.
	APIKey string
	// OwnerFile is the path of an owner.json, or of a delegated key.
	OwnerFile string
	// Stranger: there is no key, and none is looked for.
	Stranger bool
	// Pay makes of an x402 PaymentRequired document the value of PAYMENT-SIGNATURE; "": it will not pay that.
	Pay func(ctx context.Context, required json.RawMessage) (string, error)
	// HTTP carries the requests; nil: one of its own.
	HTTP *http.Client
}

// Client speaks to one platform with one key. It may be used by several goroutines at once.
type Client struct {
	settings Settings
	http     *http.Client
	lock     sync.Mutex
	// How far the server's clock is before ours.
	ahead time.Duration
}

// New returns a client, with the key that is given or found.
func New(settings Settings) (*Client, error) {
	if err := find(&settings); err != nil {
		return nil, err
	}
	settings.URL = strings.TrimRight(settings.URL, "/")
	if err := demandPrivate(settings); err != nil {
		return nil, err
	}
	carrier := settings.HTTP
	if carrier == nil {
		carrier = &http.Client{}
	}
	// An answer that leads elsewhere would take a signature there.
	own := *carrier
	own.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	return &Client{settings: settings, http: &own}, nil
}

// Some returns a pointer to a value, for what may be left out.
func Some[T any](value T) *T { return &value }

func find(settings *Settings) error {
	isNamed := settings.PublicKey != "" || settings.SecretKey != "" || settings.APIKey != ""
	if settings.URL == "" {
		settings.URL = os.Getenv("SANDBOXER_URL")
	}
	if !isNamed && settings.OwnerFile == "" && !settings.Stranger {
		settings.PublicKey = os.Getenv("SANDBOXER_PUBLIC_KEY")
		settings.SecretKey = os.Getenv("SANDBOXER_SECRET_KEY")
		settings.APIKey = os.Getenv("SANDBOXER_API_KEY")
		isNamed = settings.PublicKey != "" || settings.SecretKey != "" || settings.APIKey != ""
	}
	if (settings.PublicKey == "") != (settings.SecretKey == "") {
		return fmt.Errorf("sandboxer: a public key needs its secret key, and the other way round")
	}
	if !isNamed && !settings.Stranger {
		if err := readOwnerFile(settings); err != nil {
			return err
		}
	}
	if settings.URL == "" {
		settings.URL = DefaultURL
	}
	return nil
}

func readOwnerFile(settings *Settings) error {
	path := settings.OwnerFile
	if path == "" {
		path = os.Getenv("SANDBOXER_CREDENTIALS")
	}
	if path == "" {
		folder := os.Getenv("SANDBOXER_STATE_DIR")
		if folder == "" {
			folder = "/var/lib/sandboxer"
		}
		path = filepath.Join(folder, "owner.json")
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("sandboxer: no key was given, and none was found: %w", err)
	}
	var held struct {
		URL       string `json:"url"`
		PublicKey string `json:"public_key"`
		SecretKey string `json:"secret_key"`
	}
	if err := json.Unmarshal(text, &held); err != nil || held.PublicKey == "" || held.SecretKey == "" {
		return fmt.Errorf("sandboxer: %s is not an owner.json", path)
	}
	settings.PublicKey, settings.SecretKey = held.PublicKey, held.SecretKey
	if settings.URL == "" {
		settings.URL = held.URL
	}
	return nil
}

// A bearer token goes by TLS or stays on this host: others could read it on its way.
func demandPrivate(settings Settings) error {
	address, err := url.Parse(settings.URL)
	if err != nil {
		return fmt.Errorf("sandboxer: %w", err)
	}
	name := address.Hostname()
	isHere := name == "localhost" || strings.HasSuffix(name, ".localhost") || net.ParseIP(name).IsLoopback()
	if settings.APIKey == "" || address.Scheme == "https" || isHere {
		return nil
	}
	return fmt.Errorf("sandboxer: a bearer token would go to %s for everybody on its way to read; use https", settings.URL)
}

// What the generated methods say of an operation.
type operation struct {
	id, method, path string
	// Media type of the body; "": there is none.
	sends string
	// Statuses of 400 and above whose answers are no problems.
	also         []int
	isRepeatable bool
	patience     time.Duration
}

const (
	defaultPatience = 90 * time.Second
	margin          = 30 * time.Second
)

func send[T any](ctx context.Context, c *Client, op operation, in any) (*T, error) {
	ctx, cancel := context.WithTimeout(ctx, patienceFor(op, in))
	defer cancel()
	response, err := c.open(ctx, op, in, false)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	answer := new(T)
	if err := json.NewDecoder(response.Body).Decode(answer); err != nil {
		return nil, fmt.Errorf("sandboxer: the answer to %s is not what was expected: %w", op.id, err)
	}
	return answer, nil
}

func (c *Client) nothing(ctx context.Context, op operation, in any) error {
	ctx, cancel := context.WithTimeout(ctx, patienceFor(op, in))
	defer cancel()
	response, err := c.open(ctx, op, in, false)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

func (c *Client) bytes(ctx context.Context, op operation, in any) (io.ReadCloser, error) {
	response, err := c.open(ctx, op, in, false)
	if err != nil {
		return nil, err
	}
	return response.Body, nil
}

func (c *Client) events(ctx context.Context, op operation, in any) (*Events, error) {
	response, err := c.open(ctx, op, in, true)
	if err != nil {
		return nil, err
	}
	return newEvents(response.Body), nil
}

// How long the platform may take: what is asked for, and what the network may add.
func patienceFor(op operation, in any) time.Duration {
	most := defaultPatience
	if op.patience+margin > most {
		most = op.patience + margin
	}
	if asked := askedTimeout(in) + margin; asked > most {
		most = asked
	}
	return most
}
