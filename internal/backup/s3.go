// SPDX-License-Identifier: Apache-2.0

package backup

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"net/http"
	"path"
	"strings"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
)

// S3 says how to reach buckets. Keys come from the AWS_ or MINIO_ variables of the environment, the shared
// credentials file, or the machine's role.
type S3 struct {
	Endpoint string // host:port; default that of AWS
	Region   string // default: the server is asked
	Insecure bool   // without TLS
	// Transport makes the requests. Default: that of the library.
	Transport http.RoundTripper
}

// bucket is a Target.
type bucket struct {
	client *minio.Client
	name   string
	prefix string
}

func openBucket(location string, cfg S3) (Target, error) {
	name, prefix, _ := strings.Cut(location, "/")
	cfg.Endpoint = cmp.Or(cfg.Endpoint, "s3.amazonaws.com")
	client, err := minio.New(cfg.Endpoint, &minio.Options{
		Creds: credentials.NewChainCredentials([]credentials.Provider{
			&credentials.EnvAWS{}, &credentials.EnvMinio{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
		}),
		Secure: !cfg.Insecure, Region: cfg.Region, Transport: cfg.Transport,
	})
	if err != nil {
		return nil, fmt.Errorf("backup to s3://%s at %s: %w", location, cfg.Endpoint, err)
	}
	return &bucket{client: client, name: name, prefix: prefix}, nil
}

// Put implements Target. Large files go in parts; S3 shows none of it before all of it is there.
func (b *bucket) Put(ctx context.Context, name string, r io.Reader, size int64) error {
	_, err := b.client.PutObject(ctx, b.name, path.Join(b.prefix, name), r, size, minio.PutObjectOptions{
		ContentType: "application/octet-stream",
	})
	return b.failed(err)
}

// Get implements Target.
func (b *bucket) Get(ctx context.Context, name string) (io.ReadCloser, error) {
	object, err := b.client.GetObject(ctx, b.name, path.Join(b.prefix, name), minio.GetObjectOptions{})
	if err != nil {
		return nil, b.failed(err)
	}
	return object, nil
}

// Last implements Target.
func (b *bucket) Last(ctx context.Context, prefix string) (last string, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	from := path.Join(b.prefix, prefix) + "/"
	for object := range b.client.ListObjects(ctx, b.name, minio.ListObjectsOptions{Prefix: from}) {
		if object.Err != nil {
			return "", b.failed(object.Err)
		}
		last = max(last, prefix+strings.TrimPrefix(object.Key, from))
	}
	return last, nil
}

// failed says which bucket it was.
func (b *bucket) failed(err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("s3://%s: %w", b.name, err)
}
