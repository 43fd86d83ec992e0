// Command certify writes a certificate authority and a client certificate that it has signed, for an API server to show to
// kubelets: `certify FOLDER` makes ca.crt, client.crt and client.key. The authority's own key is forgotten.
package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"time"
)

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: certify FOLDER")
		os.Exit(2)
	}
	if err := certify(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, "certify:", err)
		os.Exit(1)
	}
}

func certify(folder string) error {
	authority := template(1, "gputopo-playground")
	authority.IsCA, authority.BasicConstraintsValid, authority.KeyUsage = true, true, x509.KeyUsageCertSign
	client := template(2, "kube-apiserver")
	client.ExtKeyUsage = []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth}
	authorityKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	clientKey, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	authorityDER, err := x509.CreateCertificate(rand.Reader, authority, authority, &authorityKey.PublicKey, authorityKey)
	if err != nil {
		return err
	}
	clientDER, err := x509.CreateCertificate(rand.Reader, client, authority, &clientKey.PublicKey, authorityKey)
	if err != nil {
		return err
	}
	keyDER, err := x509.MarshalECPrivateKey(clientKey)
	if err != nil {
		return err
	}
	for _, block := range []struct {
		name, kind string
		der        []byte
	}{{"ca.crt", "CERTIFICATE", authorityDER}, {"client.crt", "CERTIFICATE", clientDER}, {"client.key", "EC PRIVATE KEY", keyDER}} {
		text := pem.EncodeToMemory(&pem.Block{Type: block.kind, Bytes: block.der})
		if err := os.WriteFile(filepath.Join(folder, block.name), text, 0o600); err != nil {
			return err
		}
	}
	return nil
}

func template(serial int64, name string) *x509.Certificate {
	return &x509.Certificate{
		SerialNumber: big.NewInt(serial),
		Subject:      pkix.Name{CommonName: name},
		NotBefore:    time.Now().Add(-time.Hour),
		NotAfter:     time.Now().Add(24 * time.Hour),
	}
}
