"""Code that several probes share, such as masking, clusters, routes, patches and linear algebra."""
