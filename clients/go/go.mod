module duetime.example/go/duetime

go 1.19
