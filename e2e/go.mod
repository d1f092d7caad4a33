module github.com/roquetmq/roquet/e2e

go 1.26
