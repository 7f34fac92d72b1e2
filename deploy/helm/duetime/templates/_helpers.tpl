{{- define "duetime.name" -}}
{{- if contains .Chart.Name .Release.Name }}{{ .Release.Name | trunc 52 | trimSuffix "-" }}{{ else }}{{ printf "%s-%s" .Release.Name .Chart.Name | trunc 52 | trimSuffix "-" }}{{ end }}
{{- end }}

{{/* The job of Prometheus is the cluster: rules and dashboards tell releases apart by it. */}}
{{- define "duetime.job" -}}
{{ .Release.Namespace }}/{{ include "duetime.name" . }}
{{- end }}

{{/* The name in the nodes' certificate by which they know each other. */}}
{{- define "duetime.serverName" -}}
{{ .Values.tls.serverName | default (printf "%s.%s.svc" (include "duetime.name" .) .Release.Namespace) }}
{{- end }}

{{- define "duetime.selector" -}}
app.kubernetes.io/name: {{ .Chart.Name }}
app.kubernetes.io/instance: {{ .Release.Name }}
{{- end }}

{{- define "duetime.ownLabels" -}}
{{ include "duetime.selector" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version }}
{{- end }}

{{/* Of every object. */}}
{{- define "duetime.labels" -}}
{{ include "duetime.ownLabels" . }}
{{- with .Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{/* What one value cannot know of another: each refusal names the value and what to write. Nothing is made of such values. */}}
{{- define "duetime.refusals" -}}
{{- $v := .Values -}}
{{- $monitor := $v.serviceMonitor -}}
{{- $tls := $monitor.tlsConfig | default dict -}}
{{- if and $monitor.enabled $v.auth.metrics (not $monitor.tokenSecret.name) -}}
{{- fail "serviceMonitor.tokenSecret.name: /metrics asks for a token; name the Secret that holds one, or set auth.metrics to false" -}}
{{- end -}}
{{- if and $monitor.enabled $v.tls.secretName (not (or $tls.serverName $tls.insecureSkipVerify)) -}}
{{- fail (printf "serviceMonitor.tlsConfig: Prometheus asks pods by their address, which their certificate does not name; write the name in it and its authority, such as {serverName: %s.%s.svc, ca: {secret: {name: %s, key: ca.crt}}}" (include "duetime.name" .) .Release.Namespace $v.tls.secretName) -}}
{{- end -}}
{{- if and $tls (not $v.tls.secretName) -}}
{{- fail "serviceMonitor.tlsConfig: the nodes speak no TLS; set tls.secretName, or leave this empty" -}}
{{- end -}}
{{- if and $monitor.enabled $v.networkPolicy.enabled (not $v.networkPolicy.prometheus) -}}
{{- fail "networkPolicy.prometheus: the policy would keep Prometheus out; name its pods, such as [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}]" -}}
{{- end -}}
{{- if and $v.networkPolicy.enabled (not $v.networkPolicy.from) -}}
{{- if $v.ingress.enabled -}}
{{- fail "networkPolicy.from: the policy would keep the ingress controller out; name its namespace, such as [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: ingress-nginx}}}, {podSelector: {}}]" -}}
{{- end -}}
{{- if ne $v.service.type "ClusterIP" -}}
{{- fail (printf "networkPolicy.from: the policy would keep out whoever comes through a service of the type %s; name who may, such as [{ipBlock: {cidr: 10.0.0.0/8}}, {podSelector: {}}]" $v.service.type) -}}
{{- end -}}
{{- end -}}
{{- if $v.autoscaling.enabled -}}
{{- if not $v.autoscaling.perNode -}}
{{- fail "autoscaling.perNode: write the messages a second that one node is given, such as perNode: 16000, four fifths of what one carries (docs/CAPACITY.md); without it nodes are added once messages are late, taken away again, and so on" -}}
{{- end -}}
{{- if gt (int $v.autoscaling.min) (int $v.autoscaling.max) -}}
{{- fail (printf "autoscaling.max: %d is below autoscaling.min, %d" (int $v.autoscaling.max) (int $v.autoscaling.min)) -}}
{{- end -}}
{{- end -}}
{{- range $label, $_ := include "duetime.ownLabels" $ | fromYaml -}}
{{- if hasKey ($v.commonLabels | default dict) $label -}}
{{- fail (printf "commonLabels: %s is a label of the chart's own; take it out" $label) -}}
{{- end -}}
{{- end -}}
{{- $labels := dict "podLabels" $v.podLabels "service.labels" $v.service.labels "ingress.labels" $v.ingress.labels "serviceMonitor.labels" $monitor.labels "prometheusRule.labels" $v.prometheusRule.labels -}}
{{- range $value, $given := $labels -}}
{{- range $label, $_ := include "duetime.labels" $ | fromYaml -}}
{{- if hasKey ($given | default dict) $label -}}
{{- fail (printf "%s: %s is a label of all objects already; take it out" $value $label) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- if hasKey ($v.podAnnotations | default dict) "checksum/config" -}}
{{- fail "podAnnotations: checksum/config is an annotation of the chart's own; take it out" -}}
{{- end -}}
{{- range $v.env -}}
{{- if eq (hasKey . "value") (hasKey . "valueFrom") -}}
{{- fail (printf "env: %s wants either value or valueFrom" .name) -}}
{{- end -}}
{{- end -}}
{{- end }}

{{/* More nodes help where due messages wait for nodes, not where they wait for a sink that is down, for consumers
that are gone or for a store that answers no node. */}}
{{- define "duetime.late" -}}
max((max by (topic) (duetime_oldest_due_age_seconds{job="{{ include "duetime.job" . }}"})) unless on (topic) (max by (topic) (duetime_breaker_open{job="{{ include "duetime.job" . }}"}) == 1 or max by (topic) (duetime_paused{job="{{ include "duetime.job" . }}"}) == 1 or min by (topic) (duetime_consumer_claim_age_seconds{job="{{ include "duetime.job" . }}"}) > 60) unless on () min(duetime_survey_age_seconds{job="{{ include "duetime.job" . }}"}) > 30) or vector(0)
{{- end }}

{{/* Messages a second that fall due in the coming five minutes. */}}
{{- define "duetime.ahead" -}}
sum((sum by (topic) (duetime_forecast{job="{{ include "duetime.job" . }}",within="5m"})) unless on (topic) (max by (topic) (duetime_breaker_open{job="{{ include "duetime.job" . }}"}) == 1 or max by (topic) (duetime_paused{job="{{ include "duetime.job" . }}"}) == 1)) / 300 or vector(0)
{{- end }}

{{/* One node at a time is taken away, and rarely: each change moves shards. */}}
{{- define "duetime.behavior" -}}
scaleDown:
  stabilizationWindowSeconds: {{ .Values.autoscaling.cooldownSeconds }}
  policies: [{type: Pods, value: 1, periodSeconds: {{ .Values.autoscaling.cooldownSeconds }}}]
scaleUp:
  stabilizationWindowSeconds: 30
  policies: [{type: Pods, value: 2, periodSeconds: 60}]
{{- end }}

{{- define "duetime.image" -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end }}

{{- define "duetime.mounts" -}}
- {name: config, mountPath: /etc/duetime, readOnly: true}
{{- if eq .Values.store.kind "redis" }}
- {name: store, mountPath: /run/secrets/store, readOnly: true}
{{- end }}
{{- range .Values.secrets }}
- {name: secret-{{ . | replace "." "-" }}, mountPath: /run/secrets/{{ . }}, readOnly: true}
{{- end }}
{{- if .Values.tls.secretName }}
- {name: tls, mountPath: /run/tls, readOnly: true}
{{- end }}
{{- end }}

{{- define "duetime.pod" -}}
metadata:
  labels:
    {{- include "duetime.selector" . | nindent 4 }}
    {{- with .Values.commonLabels }}{{ toYaml . | nindent 4 }}{{ end }}
    {{- with .Values.podLabels }}{{ toYaml . | nindent 4 }}{{ end }}
  annotations:
    checksum/config: {{ include "duetime.config" . | sha256sum }}
    {{- with .Values.podAnnotations }}{{ toYaml . | nindent 4 }}{{ end }}
spec:
  serviceAccountName: {{ include "duetime.name" . }}
  automountServiceAccountToken: false
  {{- with .Values.imagePullSecrets }}
  imagePullSecrets: {{- toYaml . | nindent 4 }}
  {{- end }}
  terminationGracePeriodSeconds: {{ add .Values.shutdownGraceSeconds 15 }}
  securityContext:
    runAsNonRoot: true
    runAsUser: 65532
    runAsGroup: 65532
    fsGroup: 65532
    fsGroupChangePolicy: OnRootMismatch
    seccompProfile: {type: RuntimeDefault}
  {{- with .Values.priorityClassName }}
  priorityClassName: {{ . }}
  {{- end }}
  topologySpreadConstraints:
    {{- range .Values.topologySpreadConstraints }}
    - {{- if not .labelSelector }}
      labelSelector:
        matchLabels: {{- include "duetime.selector" $ | nindent 10 }}
      {{- end }}
      {{- toYaml . | nindent 6 }}
    {{- else }}
    - maxSkew: 1
      topologyKey: kubernetes.io/hostname
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "duetime.selector" . | nindent 10 }}
    - maxSkew: 1
      topologyKey: topology.kubernetes.io/zone
      whenUnsatisfiable: ScheduleAnyway
      labelSelector:
        matchLabels: {{- include "duetime.selector" . | nindent 10 }}
    {{- end }}
  initContainers:
    - name: check-config
      image: {{ include "duetime.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [check-config, --offline, /etc/duetime/duetime.toml]
      env: &env
        # A node is named after its pod.
        - {name: DUETIME_NODE_ID, valueFrom: {fieldRef: {fieldPath: metadata.name}}}
        # The other nodes ask it for its figures there.
        - {name: DUETIME_ADVERTISE, valueFrom: {fieldRef: {fieldPath: status.podIP}}}
        {{- with .Values.env }}{{ toYaml . | nindent 8 }}{{ end }}
      {{- with .Values.envFrom }}
      envFrom: &envFrom {{- toYaml . | nindent 8 }}
      {{- end }}
      securityContext: &locked
        allowPrivilegeEscalation: false
        readOnlyRootFilesystem: true
        capabilities: {drop: [ALL]}
      resources: {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        {{- include "duetime.mounts" . | nindent 8 }}
        - {name: data, mountPath: /var/lib/duetime}
  containers:
    - name: duetime
      image: {{ include "duetime.image" . | quote }}
      imagePullPolicy: {{ .Values.image.pullPolicy }}
      args: [serve, --config, /etc/duetime/duetime.toml]
      env: *env
      {{- if .Values.envFrom }}
      envFrom: *envFrom
      {{- end }}
      ports: [{name: http, containerPort: 3830}]
      startupProbe:
        httpGet: &healthz {path: /healthz, port: http{{ if .Values.tls.secretName }}, scheme: HTTPS{{ end }}}
        periodSeconds: 2
        failureThreshold: 60
      livenessProbe: {httpGet: *healthz, periodSeconds: 10, timeoutSeconds: 5, failureThreshold: 6}
      readinessProbe:
        httpGet: {path: /readyz, port: http{{ if .Values.tls.secretName }}, scheme: HTTPS{{ end }}}
        periodSeconds: 5
        timeoutSeconds: 5
      # The service stops sending requests before the node stops taking them.
      lifecycle: {preStop: {sleep: {seconds: 5}}}
      securityContext: *locked
      resources: {{- toYaml .Values.resources | nindent 8 }}
      volumeMounts:
        {{- include "duetime.mounts" . | nindent 8 }}
        - {name: data, mountPath: /var/lib/duetime}
  {{- with .Values.nodeSelector }}
  nodeSelector: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.tolerations }}
  tolerations: {{- toYaml . | nindent 4 }}
  {{- end }}
  {{- with .Values.affinity }}
  affinity: {{- toYaml . | nindent 4 }}
  {{- end }}
  volumes:
    - {name: config, configMap: {name: {{ include "duetime.name" . }}}}
    {{- if eq .Values.store.kind "redis" }}
    - {name: data, emptyDir: {}}
    - name: store
      secret: {secretName: {{ .Values.store.redis.urlSecret.name }}, items: [{key: {{ .Values.store.redis.urlSecret.key }}, path: url}]}
    {{- end }}
    {{- range .Values.secrets }}
    - {name: secret-{{ . | replace "." "-" }}, secret: {secretName: {{ . }}}}
    {{- end }}
    {{- if .Values.tls.secretName }}
    - {name: tls, secret: {secretName: {{ .Values.tls.secretName }}}}
    {{- end }}
{{- end }}

{{- define "duetime.config" -}}
[node]
listen = "0.0.0.0:3830"
log_format = "json"
shutdown_grace = "{{ .Values.shutdownGraceSeconds }}s"
hosts = {{ concat (list (include "duetime.name" .) (printf "%s.%s" (include "duetime.name" .) .Release.Namespace) (printf "%s.%s.svc" (include "duetime.name" .) .Release.Namespace) (printf "%s.%s.svc.cluster.local" (include "duetime.name" .) .Release.Namespace)) .Values.hosts (ternary .Values.ingress.hosts (list) .Values.ingress.enabled) | uniq | toJson }}
{{- if .Values.tls.secretName }}
tls = { cert = "/run/tls/tls.crt", key = "/run/tls/tls.key" }
{{- if and .Values.tls.caKey (eq .Values.store.kind "redis") }}
# Nodes ask each other by the addresses of their pods, which no certificate names. Where the Secret has no authority, set
# tls.caKey of the chart to "": each node shows its own figures alone then.
peer_tls = { ca_file = {{ printf "/run/tls/%s" .Values.tls.caKey | toJson }}, server_name = {{ include "duetime.serverName" . | toJson }} }
{{- end }}
{{- end }}

[store]
{{- if eq .Values.store.kind "embedded" }}
url = "embedded:/var/lib/duetime/data"
{{- else }}
url = { file = "/run/secrets/store/url" }
namespace = {{ .Values.store.redis.namespace | toJson }}
durability = {{ .Values.store.redis.durability | toJson }}
{{- end }}

[ownership]
mode = {{ .Values.ownership.mode | toJson }}
{{- if eq .Values.ownership.mode "etcd" }}
etcd = {{ .Values.ownership.etcd | toJson }}
lease_ttl = {{ .Values.ownership.leaseTtl | toJson }}
{{- end }}

[auth]
metrics = {{ .Values.auth.metrics }}
{{- range .Values.auth.tokens }}

[[auth.tokens]]
name = {{ .name | toJson }}
hash = {{ .hash | toJson }}
scopes = {{ .scopes | toJson }}
{{- with .topics }}
topics = {{ . | toJson }}
{{- end }}
{{- end }}
{{- with .Values.config }}

{{ . | trim }}
{{- end }}
{{- end }}
