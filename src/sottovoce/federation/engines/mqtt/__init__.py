"""The round over MQTT: signed messages (`envelope`), the connection (`transport`), and the server's end (`engine`)."""
