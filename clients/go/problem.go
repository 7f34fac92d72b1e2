package duetime

import (
	"errors"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// problemBody is a problem document; its status is that of the answer too, unless it is a part of one.
type problemBody struct {
	Status                     int
	Code, Title, Detail, Field string
	Outcome                    string
	Retryable                  *bool
}

func (p problemBody) refusal(status int, headers http.Header) *APIError {
	isRetryable := isPassingStatus(status)
	if p.Retryable != nil {
		isRetryable = *p.Retryable
	}
	return &APIError{
		status, p.Code, p.Title, p.Detail, p.Field, retryAfter(headers), headers.Get(requestIDHeader), isRetryable,
	}
}

// retryAfter is how long to wait before the next request, as an answer says: a number of seconds, or a date by the
// clock of the one who answers.
func retryAfter(headers http.Header) time.Duration {
	text := headers.Get("retry-after")
	if until, err := http.ParseTime(text); err == nil {
		now, err := http.ParseTime(headers.Get("date"))
		if err != nil {
			now = time.Now()
		}
		return within(until.Sub(now), retryAfterMax)
	}
	seconds, err := strconv.ParseUint(text, 10, 31)
	// One that is out of range is the largest one.
	if err != nil && !errors.Is(err, strconv.ErrRange) {
		return 0
	}
	return within(time.Duration(seconds)*time.Second, retryAfterMax)
}

func within(d, most time.Duration) time.Duration {
	if d < 0 {
		return 0
	}
	if d > most {
		return most
	}
	return d
}

// problem returns the refusal that an answer is; nil if it is an outcome, which a refusal about one message is too.
func problem(status int, headers http.Header, body []byte) error {
	kind := headers.Get("content-type")
	if strings.HasPrefix(kind, "application/problem+json") {
		var p problemBody
		if err := read(body, headers, &p); err != nil {
			return err
		}
		if p.Outcome != "" {
			return nil
		}
		return p.refusal(status, headers)
	}
	if isPassingStatus(status) {
		// A balancer in front of the node.
		return problemBody{Detail: "no node answered"}.refusal(status, headers)
	}
	// What a node refuses is a problem; other servers say no in JSON too.
	if status >= refusalMin || !strings.Contains(kind, "json") {
		return foreign(status, headers, body)
	}
	return nil
}
