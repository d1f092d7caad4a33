module github.com/roquetmq/roquet/bench

go 1.26
