package sandboxer

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"testing"
	"time"
)

// A platform that listens, and a key of it, are in the environment (tests/clients).
func here(t *testing.T) (*Client, context.Context) {
	t.Helper()
	if os.Getenv("SANDBOXER_URL") == "" {
		t.Skip("no platform: SANDBOXER_URL is not set")
	}
	client, err := New(Settings{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	t.Cleanup(cancel)
	return client, ctx
}

func must[T any](t *testing.T) func(T, error) T {
	return func(value T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return value
	}
}

func sandboxFor(t *testing.T, client *Client, ctx context.Context) *Sandbox {
	t.Helper()
	made := must[*Sandbox](t)(client.CreateSandbox(ctx, CreateSandboxInput{TTL: Some("10m")}))
	t.Cleanup(func() {
		if _, err := client.DestroySandbox(context.Background(), DestroySandboxInput{SandboxID: made.ID}); err != nil {
			t.Error(err)
		}
	})
	return made
}

func TestASandboxIsMadeUsedAndDestroyed(t *testing.T) {
	client, ctx := here(t)
	made := must[*Sandbox](t)(client.CreateSandbox(ctx, CreateSandboxInput{TTL: Some("10m")}))
	done := must[*ExecResult](t)(client.RunCommand(ctx, RunCommandInput{SandboxID: made.ID, Command: Some("echo hi; exit 3")}))
	if done.ExitCode != 3 || done.Stdout != "hi\n" {
		t.Fatalf("%+v", done)
	}
	gone := must[*DestroyedSandbox](t)(client.DestroySandbox(ctx, DestroySandboxInput{SandboxID: made.ID}))
	if gone.State != "destroyed" {
		t.Fatalf("it is %s", gone.State)
	}
}

func TestFilesComeBackAsTheyWere(t *testing.T) {
	client, ctx := here(t)
	made := sandboxFor(t, client, ctx)
	content := bytes.Repeat([]byte{0, 1, 255, 10}, 20_000)
	path := "/workspace/a b'(c)!*~+ü%20.bin"
	kept := must[*FileInfo](t)(client.WriteFile(ctx, WriteFileInput{SandboxID: made.ID, Path: path, Body: bytes.NewReader(content)}))
	if kept.Size != int64(len(content)) || kept.Path != path {
		t.Fatalf("%+v", kept)
	}
	body := must[io.ReadCloser](t)(client.ReadFile(ctx, ReadFileInput{SandboxID: made.ID, Path: path}))
	defer body.Close()
	if seen := must[[]byte](t)(io.ReadAll(body)); !bytes.Equal(seen, content) {
		t.Fatalf("%d other bytes", len(seen))
	}
}

func TestOutputComesAsEvents(t *testing.T) {
	client, ctx := here(t)
	made := sandboxFor(t, client, ctx)
	asked := RunCommandInput{SandboxID: made.ID, Command: Some("echo one; echo two >&2; exit 4"), Encoding: Some("base64")}
	events := must[*Events](t)(client.RunCommandStream(ctx, asked))
	defer events.Close()
	var names []string
	var text string
	var exit ExecExit
	for {
		event, err := events.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names = append(names, event.Name)
		var output ExecOutput
		switch event.Name {
		case "stdout", "stderr":
			err = json.Unmarshal(event.Data, &output)
			text += string(must[[]byte](t)(base64.StdEncoding.DecodeString(output.Data)))
		case "exit":
			err = json.Unmarshal(event.Data, &exit)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if said := strings.Join(names, " "); said != "started stdout stderr exit" || text != "one\ntwo\n" || exit.ExitCode != 4 {
		t.Fatalf("%s %q %+v", said, text, exit)
	}
}

func TestARepeatedKeyMakesOneSandbox(t *testing.T) {
	client, ctx := here(t)
	asked := CreateSandboxInput{IdempotencyKey: "go-" + time.Now().Format(time.RFC3339Nano), Labels: map[string]string{"of": "go"}}
	first := must[*Sandbox](t)(client.CreateSandbox(ctx, asked))
	again := must[*Sandbox](t)(client.CreateSandbox(ctx, asked))
	if first.ID != again.ID {
		t.Fatalf("%s and %s", first.ID, again.ID)
	}
	page := must[*SandboxPage](t)(client.ListSandboxes(ctx, ListSandboxesInput{Label: []string{"of=go"}}))
	if len(page.Sandboxes) != 1 || page.Sandboxes[0].CreatedAt.IsZero() {
		t.Fatalf("%+v", page)
	}
	must[*DestroyedSandbox](t)(client.DestroySandbox(ctx, DestroySandboxInput{SandboxID: first.ID}))
}

func TestAProblemSaysWhatToDo(t *testing.T) {
	client, ctx := here(t)
	_, err := client.GetSandbox(ctx, GetSandboxInput{SandboxID: "nothing-of-this-name"})
	var problem *APIError
	if !errors.As(err, &problem) || problem.Status != 404 || problem.Code != "not_found" || problem.NextStep == "" {
		t.Fatalf("%v", err)
	}
	if _, err := client.GetSandbox(ctx, GetSandboxInput{}); err == nil || !strings.Contains(err.Error(), "SandboxID") {
		t.Fatalf("a path without an id was sent: %v", err)
	}
}

// losing leads to the platform, but hangs up instead of giving the first answer back; it counts what it led.
func losing(t *testing.T, client *Client) (*Client, *int) {
	t.Helper()
	led := 0
	platform := must[*url.URL](t)(url.Parse(client.settings.URL))
	relay := httputil.NewSingleHostReverseProxy(platform)
	relay.ModifyResponse = func(response *http.Response) error {
		if led++; led == 1 {
			panic(http.ErrAbortHandler)
		}
		return nil
	}
	server := httptest.NewServer(relay)
	t.Cleanup(server.Close)
	settings := client.settings
	settings.URL = server.URL
	return must[*Client](t)(New(settings)), &led
}

func TestALostAnswerIsAskedForAgainAndMakesNothingTwice(t *testing.T) {
	client, ctx := here(t)
	door, led := losing(t, client)
	asked := CreateSandboxInput{IdempotencyKey: "lost-" + time.Now().Format(time.RFC3339Nano), Labels: map[string]string{"of": "lost"}}
	made := must[*Sandbox](t)(door.CreateSandbox(ctx, asked))
	page := must[*SandboxPage](t)(client.ListSandboxes(ctx, ListSandboxesInput{Label: []string{"of=lost"}}))
	if *led != 2 || len(page.Sandboxes) != 1 || page.Sandboxes[0].ID != made.ID {
		t.Fatalf("%d requests, %d sandboxes", *led, len(page.Sandboxes))
	}
	must[*DestroyedSandbox](t)(client.DestroySandbox(ctx, DestroySandboxInput{SandboxID: made.ID}))
}

func TestWhatMayNotBeDoneTwiceIsNotSentTwice(t *testing.T) {
	client, ctx := here(t)
	made := sandboxFor(t, client, ctx)
	door, led := losing(t, client)
	_, err := door.RunCommand(ctx, RunCommandInput{SandboxID: made.ID, Command: Some("true")})
	if err == nil || *led != 1 {
		t.Fatalf("%d requests: %v", *led, err)
	}
}

func TestAWrongClockIsMended(t *testing.T) {
	client, ctx := here(t)
	client.ahead = time.Hour
	if me := must[*Me](t)(client.ShowMe(ctx)); me.Account.ID == "" {
		t.Fatalf("%+v", me)
	}
}

func TestABearerTokenDoesNotGoWhereOthersReadIt(t *testing.T) {
	if _, err := New(Settings{URL: "http://sandboxes.example", APIKey: "sk_x"}); err == nil {
		t.Fatal("it would be sent")
	}
}

// A platform that is paid by x402 (tests/clients).
func TestA402SaysWhatItCosts(t *testing.T) {
	address := os.Getenv("PAID_URL")
	if address == "" {
		t.Skip("no platform that is paid: PAID_URL is not set")
	}
	client := must[*Client](t)(New(Settings{URL: address, Stranger: true}))
	_, err := client.CreateSandbox(context.Background(), CreateSandboxInput{TTL: Some("10m")})
	var problem *APIError
	if !errors.As(err, &problem) || !problem.IsPaymentRequired() || len(problem.Offers()) == 0 {
		t.Fatalf("%v", err)
	}
	offer := problem.Offers()[0]
	if !strings.Contains(err.Error(), "it costs "+offer.Amount+" of "+offer.Asset+" on "+offer.Network) {
		t.Fatal(err)
	}
	asked := 0
	client.settings.Pay = func(_ context.Context, required json.RawMessage) (string, error) {
		asked++
		return "", json.Unmarshal(required, &struct{}{})
	}
	if _, err = client.CreateSandbox(context.Background(), CreateSandboxInput{}); !errors.As(err, &problem) || asked != 1 {
		t.Fatalf("asked %d times to pay: %v", asked, err)
	}
}
