"""Code that probes share: masking, clusters, routes, patches, checks of their inputs, linear algebra."""
