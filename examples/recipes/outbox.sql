CREATE TABLE orders (
  id text PRIMARY KEY,
  state text NOT NULL
);

-- What is to be done at Duetime, in this order. Without a due time: cancel.
CREATE TABLE outbox (
  position bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  message_id text NOT NULL,
  due_at timestamptz,
  payload jsonb,
  error text
);
