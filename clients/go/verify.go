package duetime

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// Tolerance is how far the time of a webhook may be from this machine's clock.
const Tolerance = 5 * time.Minute

// ErrInvalidSignature is the error of a webhook that is not signed with any of the secrets, or is too old, or comes
// from the future.
var ErrInvalidSignature = errors.New("duetime: invalid signature of a webhook")

// Verify checks the signature of a webhook (Standard Webhooks, version 1) and returns its delivery id, the same for
// every attempt of one message.
//
// The body is the bytes as they came; the secrets are one "whsec_…", or several while they are changed. The signature
// covers the delivery id, the time and the body; the duetime-* headers are not signed. An error that is not
// ErrInvalidSignature says that there is no secret, or one that cannot be one.
func Verify(body []byte, headers http.Header, secrets ...string) (string, error) {
	return verifyAt(time.Now(), body, headers, secrets)
}

func verifyAt(now time.Time, body []byte, headers http.Header, secrets []string) (string, error) {
	if len(secrets) == 0 {
		return "", errors.New("duetime: no secret is given, so no webhook can be checked")
	}
	id, sent := headers.Get("webhook-id"), headers.Get("webhook-timestamp")
	seconds, err := strconv.ParseInt(sent, 10, 64)
	if id == "" || err != nil {
		return "", ErrInvalidSignature
	}
	if apart := now.Sub(time.Unix(seconds, 0)); apart > Tolerance || apart < -Tolerance {
		return "", ErrInvalidSignature
	}
	for _, secret := range secrets {
		key, err := base64.StdEncoding.DecodeString(strings.TrimPrefix(secret, "whsec_"))
		if err != nil || len(key) == 0 {
			return "", errors.New("duetime: a secret is \"whsec_\" and base64")
		}
		mac := hmac.New(sha256.New, key)
		mac.Write([]byte(id + "." + sent + "."))
		mac.Write(body)
		wanted := []byte("v1," + base64.StdEncoding.EncodeToString(mac.Sum(nil)))
		for _, given := range strings.Fields(strings.Join(headers.Values("webhook-signature"), " ")) {
			if hmac.Equal(wanted, []byte(given)) {
				return id, nil
			}
		}
	}
	return "", ErrInvalidSignature
}
