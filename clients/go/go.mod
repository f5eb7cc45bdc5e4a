module sandboxer.example/go

go 1.21
