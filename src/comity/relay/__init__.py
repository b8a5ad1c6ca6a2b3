"""Between organisations: a bus on which a certificate may do one thing, and nothing that lets one member run anything
at another. Sites and coordinator dial out to a relay, a `nats-server` with the configuration that is written here."""
